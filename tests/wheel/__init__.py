"""The wheel installed alone: what it holds, whether each extra is enough for what it is for, and how large that is.

| module       | what it does                                                                                  |
|--------------|-----------------------------------------------------------------------------------------------|
| environments | makes an environment with the wheel: links of the packages here, or by pip with an extra      |
| inside       | asks inside such an environment, and prints JSON                                              |
| questions    | what it is asked with each extra, and what the answer has to be                               |
| __main__     | all extras, each installed by pip: `make test-wheel`                                          |
| test_wheel   | the wheel with no extra, linked: a part of `make test`                                        |
"""
