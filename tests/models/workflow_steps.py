"""The workflows of a stream as step machines, one call of the store or the host a step. See `test_interleavings`.

Written from docs/explanation/history.md ("Workflow ownership"), not from the code. A mutant is the same with one
mistake.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tests.models.stream_state import Id, Plan, Record, Request, Segment, Segments, Status, Stream, Truncation

ATTEMPTS_MAX = 3

Stepped: TypeAlias = "tuple[Stream, Process]"


class Process(NamedTuple):
    """Where a process stands.

    Attributes:
        pc: its next step.
        who: which process.
        kind: of the workflow that it carries out now.
        wish: what it wants.
        back: where it goes on after that workflow.
        drawn: how many ids it has drawn.
        tries: how often others came first.
        id: of the workflow.
        plan: of the workflow.
        is_kept: whether its request is kept.
        seen: what it read last.
        queue: what is still to be looked at.
        has_committed: whether the commit that it ran had something to commit.
    """

    pc: str
    who: int
    kind: str
    wish: object = None
    back: tuple[str, ...] = ("done",)
    drawn: int = 0
    tries: int = 0
    id: Id = None
    plan: Plan | None = None
    is_kept: bool = False
    seen: object = None
    queue: tuple[object, ...] = ()
    has_committed: bool = False


def process(who: int, kind: str, wish: object = None) -> Process:
    """A process that begins."""
    first = {"seal": "seal_begin", "recover": "recover_status", "claim": "claim_read", "begin": "begin_state"}
    return Process(first.get(kind, "take_status"), who, kind, wish)


def is_done(found: Process) -> bool:
    """Whether a process has done what it wanted; False if it was refused."""
    return found.pc == "done"


JOINED = frozenset(
    {
        # Reads of a plan: the plan counts only if the state has not changed since before the first of them.
        "plan_scale",
        "plan_update",
        "plan_truncate",
        "plan_truncate_cut",
        "plan_commit",
        "plan_commit_transactions",
        "plan_commit_epoch",
        # A read and a compare-and-set on what was read are one step, as long as it is repeated when it fails.
        "end_write",
        # Created if absent, or monotonic, with content that follows from the plan: commutes with all steps of others.
        "scale_record",
        "scale_chunk",
        "scale_sealed_in",
        "scale_show",
        "roll_record",
        "roll_chunk",
        "roll_record_again",
        "roll_chunk_again",
        "roll_sealed_in",
        "roll_show",
        "end_transaction_tell",
        # Reads whether others have moved the stream already; what follows if not is idempotent.
        "roll_current",
        "roll_again",
        # What the host says of a sealed segment stays so.
        "roll_sizes",
        "roll_sizes_active",
        "seal_sizes",
    }
)
"""Steps that may be taken together with the one before them: see `test_interleavings`."""


class Workflows:
    """Steps of processes.

    Args:
        mutant: which mistake they make; empty = none.
        is_joined: whether each of the steps in `JOINED` is taken together with the one before it.
    """

    def __init__(self, mutant: str = "", *, is_joined: bool = False) -> None:
        self.mutant = mutant
        self._joined: frozenset[str] = JOINED if is_joined else frozenset()

    def step(self, s: Stream, p: Process) -> Stepped | None:
        """The next step of a process; None if it has come to its end."""
        if p.pc in ("done", "refused"):
            return None
        found: Stepped = getattr(self, p.pc)(s, p)
        while found[1].pc in self._joined:
            found = getattr(self, found[1].pc)(*found)
        return found

    # Taking the stream

    def take_status(self, s: Stream, p: Process) -> Stepped:
        if self.mutant == "plans before it reads the state" and p.plan is None:
            return getattr(self, f"plan_{p.kind}")(s, p._replace(id=(p.who, p.drawn), drawn=p.drawn + 1))  # type: ignore[no-any-return]
        p = p._replace(seen=s.status)
        if s.status.owner is not None:
            return s, p._replace(pc="take_request")
        if not (s.status.state == "ACTIVE" or (s.status.state == "SEALING" and p.kind == "commit")):
            return s, _refused(p)
        if p.plan is not None:
            return s, p._replace(pc="take_create")
        return s, p._replace(pc=f"plan_{p.kind}", id=(p.who, p.drawn), drawn=p.drawn + 1)

    def take_request(self, s: Stream, p: Process) -> Stepped:
        assert isinstance(p.seen, Status)
        found = s.request(p.seen.owner)
        if found is None:
            return s, _again(p)
        if found.plan.kind == p.kind and (p.kind == "commit" or found.plan.wish == p.wish):
            return s, _carrying(p._replace(has_committed=True), found)
        return s, _refused(p)

    def plan_scale(self, s: Stream, p: Process) -> Stepped:
        plan = _scale_plan(s, p.wish)
        return s, _refused(p) if plan is None else _planned(p, plan)

    def plan_update(self, s: Stream, p: Process) -> Stepped:
        return s, _planned(p, Plan("update", p.wish, base=s.configuration[1]))

    def plan_truncate(self, s: Stream, p: Process) -> Stepped:
        return s, p._replace(pc="plan_truncate_cut", queue=(s.truncation,))

    def plan_truncate_cut(self, s: Stream, p: Process) -> Stepped:
        [now] = p.queue
        assert isinstance(now, Truncation)
        epoch = s.current if p.wish is None else int(str(p.wish))
        if now.updating or epoch < now.epoch:
            return s, _refused(p)
        return s, _planned(p._replace(queue=()), Plan("truncate", p.wish, epoch, base=now.by, last=now.epoch))

    def plan_commit(self, s: Stream, p: Process) -> Stepped:
        return s, p._replace(pc="plan_commit_transactions", queue=s.order)

    def plan_commit_transactions(self, s: Stream, p: Process) -> Stepped:
        found = [s.transaction(str(each)) for each in p.queue]
        chosen = sorted(each[2:] + each[:1] for each in found if each is not None and each[1] == "COMMITTING")
        if not chosen:
            return s, _back(p._replace(has_committed=False))
        return s, p._replace(pc="plan_commit_epoch", queue=chosen[0])

    def plan_commit_epoch(self, s: Stream, p: Process) -> Stepped:
        epoch, name = p.queue
        rolls = s.epochs[s.current].reference != epoch
        plan = Plan("commit", name, s.current, rolls=rolls, last=int(str(epoch)))
        return s, _planned(p._replace(queue=(), has_committed=True), plan)

    def take_create(self, s: Stream, p: Process) -> Stepped:
        assert isinstance(p.seen, Status)
        assert p.plan is not None
        if self.mutant == "takes the stream before it writes the request" and p.pc == "take_create":
            if s.status != p.seen:
                return s, _again(p)
            return self._taken(s, p), p._replace(pc="take_create_late")
        s = s.with_request(Request(p.id, "claimed", p.seen.version, p.plan))
        return s, p._replace(pc="take_write")

    def take_create_late(self, s: Stream, p: Process) -> Stepped:
        s, p = self.take_create(s, p)
        return s, _carrying(p, _own_request(p))

    def take_write(self, s: Stream, p: Process) -> Stepped:
        if s.status != p.seen and self.mutant != "takes the stream without a condition":
            return s, p._replace(pc="take_erase")
        return self._taken(s, p), _carrying(p, _own_request(p))

    def take_erase(self, s: Stream, p: Process) -> Stepped:
        return s.without_request(p.id), _again(p)

    def _taken(self, s: Stream, p: Process) -> Stream:
        if s.status.state == "SEALING":
            unnamed = self.mutant == "a commit within a sealing is not named"
            return s if unnamed else s.with_state("SEALING", p.id)
        return s.with_state(p.kind.upper() if p.kind != "claim" else "SCALE", p.id)

    # Giving it back

    def end_kept(self, s: Stream, p: Process) -> Stepped:
        found = s.request(p.id)
        if found is not None and found.status == "claimed":
            s = s.with_request(found._replace(status="done"))
        late = self.mutant == "a kept request is done after the state is given back"
        return s, _back(p) if late else p._replace(pc="end_read")

    def end_read(self, s: Stream, p: Process) -> Stepped:
        if self.mutant == "erases the request before the state is given back" and not p.is_kept:
            s = s.without_request(p.id)
            return s, p._replace(pc="end_write", seen=s.status)
        if s.status.owner != p.id and self.mutant != "ends without asking for the id":
            return s, self._given_back(p)
        return s, p._replace(pc="end_write", seen=s.status)

    def end_write(self, s: Stream, p: Process) -> Stepped:
        assert isinstance(p.seen, Status)
        erased = self.mutant == "erases the request before the state is given back"
        if s.status != p.seen and self.mutant != "ends without a condition":
            return s, p._replace(pc="end_read")
        if s.status.owner == p.id or not erased:
            s = s.with_state("SEALING" if p.seen.state == "SEALING" else "ACTIVE")
        return s, self._given_back(p)

    def end_erase(self, s: Stream, p: Process) -> Stepped:
        return s.without_request(p.id), _back(p)

    def _given_back(self, p: Process) -> Process:
        if p.is_kept:
            late = self.mutant == "a kept request is done after the state is given back"
            return p._replace(pc="end_kept", seen=None) if late else _back(p)
        return p._replace(pc="end_erase", seen=None)

    def _ending(self, p: Process) -> Process:
        late = self.mutant == "a kept request is done after the state is given back"
        return p._replace(pc="end_kept" if p.is_kept and not late else "end_read", queue=(), seen=None)

    # A scale

    def scale_current(self, s: Stream, p: Process) -> Stepped:
        return s, p._replace(pc="scale_create" if s.current <= _plan(p).epoch else "scale_show")

    def scale_create(self, s: Stream, p: Process) -> Stepped:
        return self._created(s, (_plan(p).new,)), p._replace(pc="scale_seal")

    def scale_seal(self, s: Stream, p: Process) -> Stepped:
        wish = _segment(_plan(p).wish)
        return s, p._replace(pc="scale_record", queue=((wish, s.told_size(wish)),))

    def scale_record(self, s: Stream, p: Process) -> Stepped:
        return _with_record(s, _plan(p).epoch + 1, self._scaled(s, p)), p._replace(pc="scale_chunk")

    def scale_chunk(self, s: Stream, p: Process) -> Stepped:
        return _with_chunk(s, _plan(p).epoch + 1), p._replace(pc="scale_sealed_in")

    def scale_sealed_in(self, s: Stream, p: Process) -> Stepped:
        sealed = frozenset({(_segment(_plan(p).wish), _plan(p).epoch + 1)})
        if self.mutant == "moves the stream before the sizes are known":
            return s._replace(sealed_in=s.sealed_in | sealed), p._replace(pc="scale_advance")
        return s._replace(sealed_in=s.sealed_in | sealed), p._replace(pc="scale_sizes")

    def scale_sizes(self, s: Stream, p: Process) -> Stepped:
        return self._with_sizes(s, p), p._replace(pc="scale_advance", queue=())

    def scale_advance(self, s: Stream, p: Process) -> Stepped:
        return self._advanced(s, _plan(p).epoch + 1), p._replace(pc="scale_show")

    def scale_show(self, s: Stream, p: Process) -> Stepped:
        return s._replace(shown=max(s.shown, _plan(p).epoch + 1)), self._ending(p)

    def _scaled(self, s: Stream, p: Process) -> Record:
        plan = _plan(p)
        stays = [each for each in s.epochs[plan.epoch].segments if each != plan.wish]
        return Record((*stays, plan.new), plan.epoch + 1)

    # A commit

    def commit_order(self, s: Stream, p: Process) -> Stepped:
        s = s._replace(order=tuple(each for each in s.order if each != _plan(p).wish))
        if self.mutant == "tells the end before the data is merged":
            return s, p._replace(pc="end_transaction_read")
        return s, p._replace(pc="roll_current" if _plan(p).rolls else "commit_merge")

    def commit_merge(self, s: Stream, p: Process) -> Stepped:
        s = self._merged(s, p, s.epochs[_plan(p).epoch].segments)
        return s, p._replace(pc="end_transaction_read")

    def end_transaction_read(self, s: Stream, p: Process) -> Stepped:
        found = s.transaction(str(_plan(p).wish))
        return s, self._ending(p) if found is None else p._replace(pc="end_transaction_tell")

    def end_transaction_tell(self, s: Stream, p: Process) -> Stepped:
        ended = s.ended | {(str(_plan(p).wish), "COMMITTED")}
        return s._replace(ended=ended), p._replace(pc="end_transaction_erase")

    def end_transaction_erase(self, s: Stream, p: Process) -> Stepped:
        return _without_transaction(s, str(_plan(p).wish)), self._ending(p)

    def roll_current(self, s: Stream, p: Process) -> Stepped:
        return s, p._replace(pc="roll_create" if s.current <= _plan(p).epoch else "roll_seal_active")

    def roll_create(self, s: Stream, p: Process) -> Stepped:
        merged, again = _duplicates(s, _plan(p))
        return self._created(s, merged.segments + again.segments), p._replace(pc="roll_merge")

    def roll_merge(self, s: Stream, p: Process) -> Stepped:
        return self._merged(s, p, _duplicates(s, _plan(p))[0].segments), p._replace(pc="roll_seal_merged")

    def roll_seal_merged(self, s: Stream, p: Process) -> Stepped:
        segments = _duplicates(s, _plan(p))[0].segments
        return s, p._replace(pc="roll_seal_active", queue=(tuple((each, s.told_size(each)) for each in segments),))

    def roll_seal_active(self, s: Stream, p: Process) -> Stepped:
        sizes = tuple((each, s.told_size(each)) for each in s.epochs[_plan(p).epoch].segments)
        return s, p._replace(pc="roll_again" if p.queue else "roll_sizes_active", queue=(*p.queue, sizes))

    def roll_again(self, s: Stream, p: Process) -> Stepped:
        return s, p._replace(pc="roll_sizes_active" if s.current > _plan(p).epoch else "roll_record")

    def roll_record(self, s: Stream, p: Process) -> Stepped:
        return _with_record(s, _plan(p).epoch + 1, _duplicates(s, _plan(p))[0]), p._replace(pc="roll_chunk")

    def roll_chunk(self, s: Stream, p: Process) -> Stepped:
        return _with_chunk(s, _plan(p).epoch + 1), p._replace(pc="roll_record_again")

    def roll_record_again(self, s: Stream, p: Process) -> Stepped:
        return _with_record(s, _plan(p).epoch + 2, _duplicates(s, _plan(p))[1]), p._replace(pc="roll_chunk_again")

    def roll_chunk_again(self, s: Stream, p: Process) -> Stepped:
        return _with_chunk(s, _plan(p).epoch + 2), p._replace(pc="roll_sealed_in")

    def roll_sealed_in(self, s: Stream, p: Process) -> Stepped:
        at = _plan(p).epoch
        sealed = {(each, at + 1) for each in s.epochs[at].segments} | {
            (each, at + 2) for each in s.epochs[at + 1].segments
        }
        return s._replace(sealed_in=s.sealed_in | sealed), p._replace(pc="roll_sizes")

    def roll_sizes(self, s: Stream, p: Process) -> Stepped:
        return self._with_sizes(s, _told(p, 0)), p._replace(pc="roll_sizes_active")

    def roll_sizes_active(self, s: Stream, p: Process) -> Stepped:
        return self._with_sizes(s, _told(p, -1)), p._replace(pc="roll_advance", queue=())

    def roll_advance(self, s: Stream, p: Process) -> Stepped:
        return self._advanced(s, _plan(p).epoch + 2), p._replace(pc="roll_show")

    def roll_show(self, s: Stream, p: Process) -> Stepped:
        return s._replace(shown=max(s.shown, _plan(p).epoch + 2)), p._replace(pc="end_transaction_read")

    # A truncation, and another configuration

    def truncate_begin(self, s: Stream, p: Process) -> Stepped:
        plan = _plan(p)
        if s.truncation.by == plan.base or (
            self.mutant == "truncates whatever the record names" and s.truncation.by != p.id
        ):
            s = s._replace(truncation=Truncation(p.id, plan.epoch, plan.last, updating=True))
        is_mine = s.truncation.by == p.id and s.truncation.updating
        return s, p._replace(pc="truncate_delete") if is_mine else self._ending(p)

    def truncate_delete(self, s: Stream, p: Process) -> Stepped:
        gone = s.before(_plan(p).epoch)
        return s._replace(deleted=s.deleted | gone, created=s.created - gone), p._replace(pc="truncate_complete")

    def truncate_complete(self, s: Stream, p: Process) -> Stepped:
        if s.truncation.by == p.id or self.mutant == "completes whatever truncation the record names":
            s = s._replace(truncation=s.truncation._replace(updating=False))
        return s, self._ending(p)

    def update_write(self, s: Stream, p: Process) -> Stepped:
        if s.configuration[1] == _plan(p).base or self.mutant == "configures whatever the record names":
            s = s._replace(configuration=(_plan(p).wish, p.id))
        return s, self._ending(p)

    # Sealing the stream

    def seal_begin(self, s: Stream, p: Process) -> Stepped:
        now = s.status
        if now.state == "SEALED":
            return s, _back(p)
        if now.state == "ACTIVE" and now.owner is None:
            s = s.with_state("SEALING")
        return s, p._replace(pc="seal_active") if s.status.state == "SEALING" else _refused(p)

    def seal_active(self, s: Stream, p: Process) -> Stepped:
        queue = tuple(name for name, status, _ in s.transactions if status in ("OPEN", "ABORTING"))
        return s, _aborting(p, queue)

    def seal_abort(self, s: Stream, p: Process) -> Stepped:
        found = s.transaction(str(p.queue[0]))
        if found is None or found[1] == "COMMITTING":
            return s, _aborting(p, p.queue[1:])
        return _with_transaction(s, found[0], "ABORTING"), p._replace(pc="seal_abort_tell")

    def seal_abort_tell(self, s: Stream, p: Process) -> Stepped:
        return s._replace(ended=s.ended | {(str(p.queue[0]), "ABORTED")}), p._replace(pc="seal_abort_erase")

    def seal_abort_erase(self, s: Stream, p: Process) -> Stepped:
        return _without_transaction(s, str(p.queue[0])), _aborting(p, p.queue[1:])

    def seal_committed(self, s: Stream, p: Process) -> Stepped:
        if p.has_committed or s.transactions:
            return s, p._replace(pc="seal_active", has_committed=False)
        return s, p._replace(pc="seal_current")

    def seal_current(self, s: Stream, p: Process) -> Stepped:
        return s, p._replace(pc="seal_host", queue=s.epochs[s.current].segments)

    def seal_host(self, s: Stream, p: Process) -> Stepped:
        sizes = tuple((_segment(each), s.told_size(_segment(each))) for each in p.queue)
        return s, p._replace(pc="seal_sizes", queue=sizes)

    def seal_sizes(self, s: Stream, p: Process) -> Stepped:
        return self._with_sizes(s, p), p._replace(pc="seal_state", queue=())

    def seal_state(self, s: Stream, p: Process) -> Stepped:
        now = s.status
        if now.state == "SEALING" and now.owner is None:
            return s.with_state("SEALED"), _back(p)
        return s, _back(p) if now.owner is None else _committing(p, "seal_active")

    # A transaction that begins, and is to be committed

    def begin_state(self, s: Stream, p: Process) -> Stepped:
        return s, p._replace(pc="begin_current") if s.status.state not in ("SEALING", "SEALED") else _refused(p)

    def begin_current(self, s: Stream, p: Process) -> Stepped:
        return s, p._replace(pc="begin_entry", queue=(s.epochs[s.current].reference,))

    def begin_entry(self, s: Stream, p: Process) -> Stepped:
        transactions = (*s.transactions, (f"new{p.who}", "OPEN", int(str(p.queue[0]))))
        return s._replace(transactions=transactions), p._replace(pc="begin_look")

    def begin_look(self, s: Stream, p: Process) -> Stepped:
        if s.epochs[s.current].reference != p.queue[0]:
            return s, p._replace(pc="begin_withdraw")
        never = self.mutant == "begins a transaction without looking at the state again"
        return s, p._replace(pc="begin_order" if never else "begin_look_at_state")

    def begin_look_at_state(self, s: Stream, p: Process) -> Stepped:
        is_late = s.status.state in ("SEALING", "SEALED")
        return s, p._replace(pc="begin_withdraw" if is_late else "begin_order", queue=())

    def begin_withdraw(self, s: Stream, p: Process) -> Stepped:
        return _without_transaction(s, f"new{p.who}"), _refused(p)

    def begin_order(self, s: Stream, p: Process) -> Stepped:
        return s._replace(order=(*s.order, f"new{p.who}")), p._replace(pc="begin_commit", queue=())

    def begin_commit(self, s: Stream, p: Process) -> Stepped:
        found = s.transaction(f"new{p.who}")
        if found is None or found[1] != "OPEN":
            return s, _refused(p)
        return _with_transaction(s, found[0], "COMMITTING"), _back(p)

    # A request that was left for a process with a host

    def claim_read(self, s: Stream, p: Process) -> Stepped:
        found = s.request("asked")
        if found is None or found.status in ("done", "refused"):
            return s, _back(p)
        return s, p._replace(pc="claim_status", queue=(found,), id="asked")

    def claim_status(self, s: Stream, p: Process) -> Stepped:
        found, now = _read_request(p), s.status
        if now.owner == "asked":
            return s, p._replace(pc="claim_again", queue=())
        if now.owner is not None:
            return s, _refused(p)
        is_planned = found.status == "claimed" and found.base == now.version
        return s, p._replace(pc="claim_take" if is_planned else "claim_plan", seen=now)

    def claim_again(self, s: Stream, p: Process) -> Stepped:
        found = s.request("asked")
        if found is None or found.status in ("done", "refused"):
            return s, _back(p)
        return s, _carrying(p, found)

    def claim_plan(self, s: Stream, p: Process) -> Stepped:
        assert isinstance(p.seen, Status)
        found = _read_request(p)
        plan = _scale_plan(s, found.plan.wish) if p.seen.state == "ACTIVE" else None
        wanted = found._replace(status="refused", base=-1)
        if plan is not None:
            wanted = found._replace(status="claimed", base=p.seen.version, plan=plan)
        return s, p._replace(pc="claim_write", queue=(found, wanted))

    def claim_write(self, s: Stream, p: Process) -> Stepped:
        found, wanted = p.queue
        assert isinstance(wanted, Request)
        if s.request("asked") != found and self.mutant != "plans a request without a condition":
            return s, _again(p, "claim_read")
        s = s.with_request(wanted)
        return s, _back(p) if wanted.status == "refused" else p._replace(pc="claim_take", queue=(wanted,))

    def claim_take(self, s: Stream, p: Process) -> Stepped:
        if s.status != p.seen:
            return s, _again(p, "claim_read")
        return s.with_state("SCALE", "asked"), _carrying(p, _read_request(p))

    # Recovery

    def recover_status(self, s: Stream, p: Process) -> Stepped:
        if s.status.state == "SEALING":
            return s, p._replace(pc="seal_begin", back=("recover_list", *p.back))
        if s.status.owner is None:
            return s, p._replace(pc="recover_list", seen=s.status)
        return s, p._replace(pc="recover_request", seen=s.status)

    def recover_request(self, s: Stream, p: Process) -> Stepped:
        assert isinstance(p.seen, Status)
        found = s.request(p.seen.owner)
        if found is None:
            return s, p._replace(pc="recover_again")
        return s, _carrying(p._replace(back=("recover_status", *p.back)), found)

    def recover_again(self, s: Stream, p: Process) -> Stepped:
        if s.status == p.seen:
            return s._replace(bad=f"workflow {s.status.owner} has the stream, and no request"), p._replace(pc="refused")
        return s, p._replace(pc="recover_status", seen=None)

    def recover_list(self, s: Stream, p: Process) -> Stepped:
        # The one that is kept goes last: what follows it is then nothing.
        found = sorted((each.is_kept, str(each.id), each.id) for each in s.requests)
        is_early = self.mutant == "reads the state before the requests that it erases"
        return s, p._replace(
            pc="recover_next", queue=tuple(each[2] for each in found), seen=p.seen if is_early else None
        )

    def recover_next(self, s: Stream, p: Process) -> Stepped:
        if not p.queue:
            return s._replace(shown=max(s.shown, s.current)), _back(p)
        found = next((each for each in s.requests if each.id == p.queue[0]), None)
        if found is None or found.status in ("done", "refused"):
            return s, p._replace(queue=p.queue[1:])
        if found.is_kept:
            rest = ("recover_rest", *p.back)
            return s, p._replace(pc="claim_read", back=rest, queue=(), seen=None, tries=0)
        if p.seen is not None:
            assert isinstance(p.seen, Status)
            is_spent = found.base != p.seen.version and found.id != p.seen.owner
            return s, p._replace(pc="recover_erase") if is_spent else p._replace(queue=p.queue[1:])
        return s, p._replace(pc="recover_spent", seen=found)

    def recover_rest(self, s: Stream, p: Process) -> Stepped:
        return s, p._replace(pc="recover_next", queue=())

    def recover_spent(self, s: Stream, p: Process) -> Stepped:
        assert isinstance(p.seen, Request)
        is_spent = p.seen.base != s.status.version and p.seen.id != s.status.owner
        if self.mutant == "erases requests that may still take the stream":
            is_spent = p.seen.id != s.status.owner
        if is_spent:
            return s, p._replace(pc="recover_erase", seen=None)
        return s, p._replace(pc="recover_next", queue=p.queue[1:], seen=None)

    def recover_erase(self, s: Stream, p: Process) -> Stepped:
        [first, *rest] = p.queue
        assert first is None or isinstance(first, (tuple, str))
        return s.without_request(first), p._replace(pc="recover_next", queue=tuple(rest))

    # What several have in common

    def _created(self, s: Stream, segments: Segments) -> Stream:
        back = self.mutant == "the host creates again what was deleted"
        return s._replace(created=s.created | (set(segments) if back else set(segments) - s.deleted))

    def _merged(self, s: Stream, p: Process, segments: Segments) -> Stream:
        name = str(_plan(p).wish)
        if any(each == name for each, _ in s.merged) and self.mutant != "the host merges what it has merged":
            return s
        return s._replace(merged=(*s.merged, (name, segments)))

    def _with_sizes(self, s: Stream, p: Process) -> Stream:
        known = dict(s.sizes)
        for each in p.queue:
            assert isinstance(each, tuple)
            segment, size = each
            if segment not in known or self.mutant == "writes sizes that are known":
                known[segment] = size
        return s._replace(sizes=frozenset(known.items()))

    def _advanced(self, s: Stream, epoch: int) -> Stream:
        return s._replace(current=epoch if self.mutant == "moves the stream back" else max(s.current, epoch))


FIRST_STEPS = {
    "scale": "scale_current",
    "commit": "commit_order",
    "truncate": "truncate_begin",
    "update": "update_write",
}


def _carrying(p: Process, request: Request) -> Process:
    plan = request.plan
    return p._replace(
        pc=FIRST_STEPS[plan.kind], id=request.id, plan=plan, is_kept=request.is_kept, seen=None, tries=0, queue=()
    )


def _planned(p: Process, plan: Plan) -> Process:
    return p._replace(pc="take_create" if p.seen is not None else "take_status", plan=plan)


def _back(p: Process) -> Process:
    kind = "seal" if p.back[0].startswith("seal") else "recover" if p.back[0].startswith("recover") else p.kind
    return Process(p.back[0], p.who, kind, p.wish, p.back[1:], p.drawn, has_committed=p.has_committed)


def _again(p: Process, pc: str = "take_status") -> Process:
    if p.tries >= ATTEMPTS_MAX:
        return _refused(p)
    return p._replace(pc=pc, tries=p.tries + 1, id=None, plan=None, seen=None, queue=())


def _refused(p: Process) -> Process:
    if p.back[0] == "recover_rest":  # recovery leaves the request to the next time
        return _back(p)
    return Process("refused", p.who, p.kind if p.back == ("done",) else "recover")


def _aborting(p: Process, queue: tuple[object, ...]) -> Process:
    return p._replace(pc="seal_abort", queue=queue) if queue else _committing(p, "seal_committed")


def _committing(p: Process, then: str) -> Process:
    return Process("take_status", p.who, "commit", None, (then, *p.back), p.drawn)


def _told(p: Process, at: int) -> Process:
    """The process with the sizes of one epoch, of those that the host told."""
    sizes = p.queue[at]
    assert isinstance(sizes, tuple)
    return p._replace(queue=sizes)


def _plan(p: Process) -> Plan:
    assert p.plan is not None
    return p.plan


def _segment(found: object) -> Segment:
    assert isinstance(found, tuple)
    return found


def _own_request(p: Process) -> Request:
    return Request(p.id, "claimed", 0, _plan(p))


def _read_request(p: Process) -> Request:
    assert isinstance(p.queue[0], Request)
    return p.queue[0]


def _scale_plan(s: Stream, wish: object) -> Plan | None:
    now = s.epochs[s.current].segments
    if wish not in now:
        return None
    return Plan("scale", wish, s.current, (max(each[0] for each in now) + 1, s.current + 1))


def _duplicates(s: Stream, plan: Plan) -> tuple[Record, Record]:
    active, of_transactions = s.epochs[plan.epoch], s.epochs[plan.last]
    merged = tuple((number, plan.epoch + 1) for number, _ in of_transactions.segments)
    again = tuple((number, plan.epoch + 2) for number, _ in active.segments)
    return Record(merged, of_transactions.reference), Record(again, active.reference)


def _with_record(s: Stream, epoch: int, record: Record) -> Stream:
    if epoch > len(s.epochs):
        return s._replace(bad=f"epoch {epoch} was written before the one before it")
    return s._replace(epochs=(*s.epochs, record)) if epoch == len(s.epochs) else s


def _with_chunk(s: Stream, epoch: int) -> Stream:
    if epoch > len(s.chunk):
        return s._replace(bad=f"the history was told of epoch {epoch} before the one before it")
    return s._replace(chunk=(*s.chunk, s.epochs[epoch])) if epoch == len(s.chunk) else s


def _with_transaction(s: Stream, name: str, status: str) -> Stream:
    changed = tuple((each, status if each == name else now, epoch) for each, now, epoch in s.transactions)
    return s._replace(transactions=changed)


def _without_transaction(s: Stream, name: str) -> Stream:
    return s._replace(transactions=tuple(each for each in s.transactions if each[0] != name))
