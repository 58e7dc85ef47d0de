"""Code generation for the team of threads: posting work, waiting and parking, as LLVM IR.

A team is a block of memory. Its first word is the name of the call that owns it, 0 if it is free. Its second word is
the number of polls before a waiting thread gives up. After these, each worker has a slot: a state, then the arguments
of a call of a kernel. States:

    parked    the worker blocks on a lock in Python and must be woken
    waiting   the worker polls its state
    busy      arguments were posted, and the worker has not finished them

    inlay_share(team, n, name, task, src, dst, table)
        Executes a task on the calling thread and n workers. If another call owns the team, the calling thread executes
        all tiles and the function returns 0. Otherwise `name` becomes the owner, and a range of tiles is posted to each
        slot: parked or waiting -> busy. If a worker was parked, which is recorded in its slot, the function returns -1;
        the caller then wakes it and executes the first range. Otherwise the function executes the first range, polls
        the slots like inlay_unfinished, frees the team if all are done, and returns the number of unfinished slots.
    inlay_work(slot, team)
        Executes posted calls until none came during the given number of polls, then parks.
    inlay_unfinished(team, n)
        Polls until no slot is busy; returns the number of busy slots when it gives up.
    inlay_leave(team, name)
        Frees the team if `name` owns it.

A task is three words: the address of a kernel, the number of tiles, and the number of consecutive tiles that must stay
on one thread. With n workers, the tiles are divided into n + 1 ranges; the calling thread has the first.

A worker that just finished receives the next call within nanoseconds and without Python's global lock. An idle worker
parks after a tenth of a millisecond and then uses no processor time.
"""

from inlay.reordering.ir import declaration_of

PARKED, WAITING, BUSY = 0, 1, 2
SLOT_WORDS = 16
"""Words of one slot, and of the part before the first slot: two cache lines, so that no two threads poll one line."""
SPIN_LIMIT = 1
"""Position of the word of a team that holds the number of polls."""
PREVIOUS_STATE = 7
"""Position of the word of a slot that holds the state in which the last call found it."""
SYMBOLS = ("inlay_share", "inlay_work", "inlay_unfinished", "inlay_leave")
"""Names of the functions, in the order of the module's docstring."""


_SHARE = f"""\
define i64 @inlay_share(ptr %team, i64 %count, i64 %name, ptr %task, ptr %src, ptr %dst, ptr %table) #0 {{
entry:
  %at_tiles = getelementptr i64, ptr %task, i64 1
  %at_run = getelementptr i64, ptr %task, i64 2
  %code = load ptr, ptr %task
  %tiles = load i64, ptr %at_tiles
  %run = load i64, ptr %at_run
  %slots = getelementptr i64, ptr %team, i64 {SLOT_WORDS}
  %take = cmpxchg ptr %team, i64 0, i64 %name acquire monotonic
  %is_ours = extractvalue {{ i64, i1 }} %take, 1
  br i1 %is_ours, label %split, label %alone
alone:
  call void %code(ptr %src, ptr %dst, ptr %table, i64 0, i64 %tiles)
  ret i64 0
split:
  %whole = udiv i64 %tiles, %run
  %parts = add i64 %count, 1
  %first_share = udiv i64 %whole, %parts
  %first = mul i64 %first_share, %run
  br label %slot
slot:
  %i = phi i64 [0, %split], [%next, %post]
  %begin = phi i64 [%first, %split], [%end, %post]
  %parked = phi i64 [0, %split], [%parked_now, %post]
  %any = icmp ult i64 %i, %count
  br i1 %any, label %post, label %posted
post:
  %next = add i64 %i, 1
  %ordinal = add i64 %i, 2
  %product = mul i64 %whole, %ordinal
  %share = udiv i64 %product, %parts
  %end = mul i64 %share, %run
  %byte = mul i64 %i, {8 * SLOT_WORDS}
  %where = getelementptr i8, ptr %slots, i64 %byte
@POSTED@
  %before = atomicrmw xchg ptr %where, i64 {BUSY} acq_rel
  store i64 %before, ptr %place{PREVIOUS_STATE}
  %is_parked = icmp eq i64 %before, {PARKED}
  %one = zext i1 %is_parked to i64
  %parked_now = or i64 %parked, %one
  br label %slot
posted:
  %asleep = icmp ne i64 %parked, 0
  br i1 %asleep, label %wake, label %own
wake:
  ret i64 -1
own:
  call void %code(ptr %src, ptr %dst, ptr %table, i64 0, i64 %first)
  %left = call i64 @inlay_unfinished(ptr %team, i64 %count)
  %is_done = icmp eq i64 %left, 0
  br i1 %is_done, label %free, label %answer
free:
  store atomic i64 0, ptr %team release, align 8
  br label %answer
answer:
  ret i64 %left
}}
"""

_WORK = f"""\
define void @inlay_work(ptr %slot, ptr %team) #0 {{
entry:
  %at_looks = getelementptr i64, ptr %team, i64 {SPIN_LIMIT}
  %patience = load i64, ptr %at_looks
  br label %look
look:
  %looks = phi i64 [0, %entry], [0, %run], [%more, %again], [0, %park]
  %state = load atomic i64, ptr %slot acquire, align 8
  %called = icmp eq i64 %state, {BUSY}
  br i1 %called, label %run, label %again
again:
  @PAUSE@
  %more = add i64 %looks, 1
  %tired = icmp uge i64 %more, %patience
  br i1 %tired, label %park, label %look
park:
  %swap = cmpxchg ptr %slot, i64 {WAITING}, i64 {PARKED} acq_rel acquire
  %parked = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %parked, label %done, label %look
run:
@ARGUMENTS@
  call void %pointer1(ptr %pointer2, ptr %pointer3, ptr %pointer4, i64 %word5, i64 %word6)
  store atomic i64 {WAITING}, ptr %slot release, align 8
  br label %look
done:
  ret void
}}
"""

_UNFINISHED = f"""\
define i64 @inlay_unfinished(ptr %team, i64 %count) #0 {{
entry:
  %at_looks = getelementptr i64, ptr %team, i64 {SPIN_LIMIT}
  %patience = load i64, ptr %at_looks
  %slots = getelementptr i64, ptr %team, i64 {SLOT_WORDS}
  br label %slot
slot:
  %i = phi i64 [0, %entry], [%next, %finished]
  %looks0 = phi i64 [0, %entry], [%looks, %finished]
  %any = icmp ult i64 %i, %count
  br i1 %any, label %find, label %all
find:
  %at = mul i64 %i, {8 * SLOT_WORDS}
  %where = getelementptr i8, ptr %slots, i64 %at
  br label %look
look:
  %looks = phi i64 [%looks0, %find], [%more, %wait]
  %state = load atomic i64, ptr %where acquire, align 8
  %is_busy = icmp eq i64 %state, {BUSY}
  br i1 %is_busy, label %wait, label %finished
wait:
  @PAUSE@
  %more = add i64 %looks, 1
  %tired = icmp uge i64 %more, %patience
  br i1 %tired, label %unfinished, label %look
finished:
  %next = add i64 %i, 1
  br label %slot
unfinished:
  %left = sub i64 %count, %i
  ret i64 %left
all:
  ret i64 0
}}
"""

_LEAVE = """\
define void @inlay_leave(ptr %team, i64 %name) #0 {
  %swap = cmpxchg ptr %team, i64 %name, i64 0 release monotonic
  ret void
}
"""


def team_ir(pause: str, attributes: str) -> str:
    """Return the module of the four functions; `pause` is the statement for a polling loop (x86: `pause`)."""
    posted = [f"  %place{i} = getelementptr i64, ptr %where, i64 {i}" for i in range(1, PREVIOUS_STATE + 1)]
    values = ("ptr %code", "ptr %src", "ptr %dst", "ptr %table", "i64 %begin", "i64 %end")
    posted += [f"  store {value}, ptr %place{i}" for i, value in enumerate(values, start=1)]
    lines = []
    for i in range(1, 7):
        lines += [f"  %at{i} = getelementptr i64, ptr %slot, i64 {i}", f"  %word{i} = load i64, ptr %at{i}"]
    lines += [f"  %pointer{i} = inttoptr i64 %word{i} to ptr" for i in range(1, 5)]
    functions = "\n".join((_SHARE, _WORK, _UNFINISHED, _LEAVE)).replace("@PAUSE@", pause)
    for place, statements in (("@POSTED@", posted), ("@ARGUMENTS@", lines)):
        functions = functions.replace(place, "\n".join(statements))
    declaration = f"{declaration_of(pause)}\n" if "@" in pause else ""
    return f"{functions}\n{declaration}attributes #0 = {{ nounwind {attributes} }}\n"
