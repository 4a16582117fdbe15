"""The wheel installed alone: what it holds, whether each extra is enough for what it is for, and how large that is.

| module       | what it does                                                                                  |
|--------------|-----------------------------------------------------------------------------------------------|
| environments | makes an environment with the wheel and an extra's packages: links of those here, or by pip   |
| inside       | asks inside such an environment, and prints JSON                                              |
| questions    | what it is asked with each extra, and what the answer has to be                               |
| __main__     | all extras, each installed by pip: `make test-wheel`                                          |
| test_wheel   | all extras, each linked: a part of `make test`                                                |
"""
