"""Sluice's limits in Redis, for Python: the same buckets that Node uses, with the same scripts.

    limits = Limits(redis.Redis.from_url(url, socket_timeout=2))

    with limits.take("mail", ("crm", "acme"), timeout=30) as grant:  # waits for room in both, at most 30 s
        grant.check()                                                # just before the request
        post(...)

    with limits.lease("reports", timeout=30) as place:               # a place of a concurrency, renewed until the block ends
        work(stop=place.lost)                                        # place.lost: an Event; a place may be lost

    @limits.limited("mail", timeout=30)                              # the same, before each call
    def post(...): ...

Give a limit by its name; a limit with keys as (name, key), and more than one unit as (name, key, units). It needs redis-py and,
for quotas, the time zones of the system (or the package tzdata). Sluice's Node side defines and publishes limits, and detects
when their state was lost: docs/redis.md. A copy of this file needs limits_lua.py beside it.
"""
import functools
import hashlib
import json
import random
import threading
import time
import uuid
from datetime import datetime, timezone
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from redis.exceptions import ConnectionError, NoScriptError, RedisError, TimeoutError

from limits_lua import RESERVE, SETTLE

SHA = {script: hashlib.sha1(script.encode()).hexdigest() for script in (RESERVE, SETTLE)}
# How often a call is repeated: the scripts may need the calendar around now, and around an old state, and definitions change.
TRIES = 4
# A definition is read again after so many seconds; sooner if a bucket has a newer one.
KNOWN = 10.0
# A lease ends so many seconds after its last renewal; at most 60. It is renewed three times in that time.
LEASE = 15.0
# A lease ends here so much earlier than in Redis, because work under it needs time to stop.
STOP = 1.0
# Nobody knows when a place is given back, so it is asked for again after so many seconds.
PLACE = 0.25
# While the state is lost, calls are repeated after so many seconds.
LOST = 1.0


class LimitError(Exception):
    """A request that is not possible, or not possible now."""


class Denied(LimitError):
    """No room. `wait`: seconds after which to try again; `limit`: the name of the limit without room."""

    def __init__(self, limit, wait):
        super().__init__(f"limit {limit} has no room for {wait:.3f} s")
        self.limit, self.wait = limit, wait


class StateLost(LimitError):
    """Redis was emptied, restarted or failed over. Nothing is granted until a process of Sluice begins a new epoch."""


class GrantExpired(LimitError):
    """The grant is too old for a request: its window may have room for others by now. It was given back; take another."""


class Grant:
    """Permission for one request, until `deadline` (of time.monotonic())."""

    def __init__(self, limits, id, wants, deadline):
        self.id, self.deadline = id, deadline
        self._limits, self._wants = limits, wants

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass  # Only the vendor knows whether it counted a failed request, so its units stay charged.

    def check(self):
        """Checks the grant just before the request is written. Raises GrantExpired."""
        if time.monotonic() > self.deadline:
            self.give_back()
            raise GrantExpired(f"this grant has expired: {', '.join(want.limit for want in self._wants)}")

    def give_back(self):
        """Refunds the units, less what has drained since. Only if nothing was sent."""
        self._tell([{"bucket": i + 1, "grant": self.id} for i in range(len(self._wants))])

    def settle(self, used, limit=None):
        """Settles the grant to the units that were used, of this limit (default: of each); more than granted is owed."""
        told = [(i, want) for i, want in enumerate(self._wants) if limit in (None, want.limit) and used != want.units]
        self._tell([{"bucket": i + 1, "grant": self.id, "more": used - want.units} for i, want in told])

    def _tell(self, acts):
        if acts:
            return self._limits._ask(SETTLE, str(uuid.uuid4()), self._wants, {"acts": acts})[1][2:]


class Lease(Grant):
    """A place of each limit, until the block ends. A thread renews it.

    `lost`: set when others may have the place, a second before they can: stop what is done under it.
    """

    def __init__(self, *of, ends, seconds):
        super().__init__(*of)
        self.lost, self._ended = threading.Event(), threading.Event()
        self._ends, self._seconds = ends, seconds
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def __exit__(self, *_):
        self.release()

    def check(self):
        """Raises GrantExpired when others may have the place: also if this process slept, and the thread has not noticed yet."""
        if self.lost.is_set() or time.monotonic() >= self._ends - STOP:
            self.lost.set()
            raise GrantExpired(f"this place is lost: {', '.join(want.limit for want in self._wants)}")

    def release(self):
        """Gives the place back; a second call does nothing. If Redis is away, the place is free when the lease ends."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._tell([{"bucket": i + 1, "grant": self.id, "ended": 1} for i in range(len(self._wants))])

    def give_back(self):
        """Refunds the units, too. Only if nothing was sent."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            super().give_back()

    def _keep(self):
        wait = self._seconds / 3
        while not self._ended.wait(max(0.0, min(wait, self._ends - STOP - time.monotonic()))):
            sent = time.monotonic()
            if sent >= self._ends - STOP:
                return self.lost.set()
            try:
                acts = [{"bucket": i + 1, "grant": self.id, "renew": int(self._seconds * 1e6)} for i in self._places]
                if acts and min(self._tell(acts)) < 1:
                    return self.lost.set()
                self._ends, wait = sent + self._seconds, self._seconds / 3
            except (LimitError, RedisError):
                wait = self._seconds / 15  # Redis is away, or its state is lost

    @property
    def _places(self):
        return [i for i, want in enumerate(self._wants) if _has_places(self._limits._definition(want))]


class Limits:
    """Limits in one domain of a Redis. Safe to share between threads; make a new one after a fork, like its connection.

    `connection`: of redis-py, with a socket_timeout. Its errors are raised as they are: without a grant, make no request.
    `answer_within`: Redis does not carry out a call that it receives later than this, in seconds.
    """

    def __init__(self, connection, prefix="sluice:", domain="limits", answer_within=2.0):
        self._connection = connection
        self._keys = f"{prefix}{{{domain}}}:"
        self._within = int(answer_within * 1e6)
        self._definitions = {}
        self._seen = None  # the last time of Redis's clock, and when it was received
        self._bound = None  # the same, of the last plausible time, so that a forward step of the clock opens no limit

    def lease(self, *wants, timeout=60.0, seconds=LEASE):
        """Waits as `take`, and returns a Lease; `seconds`: after which a process that died has lost it."""
        return self.take(*wants, timeout=timeout, lease=seconds)

    def reserve(self, *wants, id=None, lease=None):
        """Returns a Grant, or raises Denied at once. The same id within a minute is the same grant."""
        wants = [_Want(*((want,) if isinstance(want, str) else want)) for want in wants]
        id, sent = id or str(uuid.uuid4()), time.monotonic()
        takes = [[i + 1, want.units] for i, want in enumerate(wants)]
        if lease is not None and not 3 * STOP <= lease <= 60:
            raise LimitError(f"a lease of {lease} s is not possible: give {3 * STOP:.0f} to 60 s")
        if lease is None and any(_has_places(self._definition(want)) for want in wants):
            raise LimitError("a limit with a concurrency has places, which are leased: use `lease`")
        leased = {} if lease is None else {"lease": int(lease * 1e6)}
        definitions, told = self._ask(RESERVE, id, wants, {"items": [{"want": 1, "takes": takes}], **leased})
        granted, wait, lacking = told[2:5]
        if granted < 1:
            has_places = _has_places(definitions[lacking - 1])
            raise Denied(wants[lacking - 1].limit, min(wait / 1e6, PLACE) if has_places else wait / 1e6)
        deadline = sent + min(definition["grant"] for definition in definitions) / 1e6
        if lease is None:
            return Grant(self, id, wants, deadline)
        return Lease(self, id, wants, deadline, ends=sent + lease, seconds=lease)

    def take(self, *wants, timeout=60.0, lease=None):
        """Waits for room and returns a Grant. Raises Denied or StateLost if there is none within `timeout` seconds."""
        ends = time.monotonic() + timeout
        while True:
            try:
                grant = self.reserve(*wants, lease=lease)
                if time.monotonic() <= grant.deadline:
                    return grant
                grant.give_back()  # the connection to Redis was too slow
                why, wait = GrantExpired("each grant was too old when it came"), 0.0
            except Denied as denied:
                why, wait = denied, denied.wait
            except StateLost as lost:
                why, wait = lost, LOST
            left = ends - time.monotonic()
            if wait > left:
                raise why
            # Never earlier than Redis returned, and not all callers at once.
            time.sleep(min(left, wait + random.uniform(0, 0.01 + wait / 10)))

    def limited(self, *wants, timeout=60.0):
        """Decorates a function that makes one request: each call takes a grant first."""

        def decorate(call):
            @functools.wraps(call)
            def limited(*args, **options):
                self.take(*wants, timeout=timeout)
                return call(*args, **options)

            return limited

        return decorate

    def hold(self, want, seconds):
        """Lets the limit grant nothing for so long, because the vendor demands it (Retry-After)."""
        want = _Want(*((want,) if isinstance(want, str) else want))
        self._ask(SETTLE, str(uuid.uuid4()), [want], {"acts": [{"bucket": 1, "hold": int(seconds * 1e6)}]})

    def _ask(self, script, id, wants, more):
        """Runs a script. Returns the definitions by which it decided, and the numbers of its answer."""
        around = [[] for _ in wants]
        for _ in range(TRIES):
            now = self._now()
            definitions = [self._definition(want) for want in wants]
            call = {"id": id, "buckets": [_told(d, [now] + more_us) for d, more_us in zip(definitions, around)], **more}
            sent = time.monotonic()
            if self._seen:
                call["until"] = now + self._within
                call["cap"] = self._cap(sent)
            keys = [f"{self._keys}epoch", f"{self._keys}a:{id}", *(f"{self._keys}b:{want.bucket}" for want in wants)]
            kind, of, *told = self._run(script, keys, json.dumps(call))
            if _text(of) != id:
                raise LimitError("Redis answered something else: close this connection")
            kind = _text(kind)
            if kind == "lost":
                raise StateLost("the state of limits in Redis is lost: nothing is granted until a new epoch begins")
            if kind == "superseded":
                self._definitions.pop(wants[told[0] - 1].limit, None)
                continue
            self._saw(told[1], sent)
            if kind == "decided":
                return definitions, told
            for times, at in zip(around, told[2:]):  # 'calendar'; or 'late', which lists none
                if at > 0:
                    times.append(at)
        raise LimitError("Redis does not decide: is the newest definition published, and does its clock step?")

    def _run(self, script, keys, argument):
        """Runs a script, and once more if the reply is lost; with the same id Redis carries it out once."""
        for is_last in (False, True):
            try:
                try:
                    return self._connection.execute_command("EVALSHA", SHA[script], len(keys), *keys, argument)
                except NoScriptError:
                    return self._connection.execute_command("EVAL", script, len(keys), *keys, argument)
            except (ConnectionError, TimeoutError):
                if is_last:
                    raise

    def _definition(self, want):
        known = self._definitions.get(want.limit)
        if known is None or time.monotonic() - known[1] > KNOWN:
            text = self._connection.execute_command("GET", f"{self._keys}d:{want.limit}")
            if text is not None:
                known = (json.loads(text), time.monotonic())
            elif known is None:
                if not self._connection.execute_command("EXISTS", f"{self._keys}epoch"):
                    raise StateLost("this Redis has no state of limits: nothing is granted until an epoch begins")
                raise LimitError(f"no limit {want.limit} is published in this Redis")
            self._definitions[want.limit] = known  # a flush deletes definitions; the known one stays valid
        _check(want, known[0])
        return known[0]

    def _now(self):
        """Estimates the time of Redis's clock, in microseconds."""
        if self._seen is None:
            return time.time_ns() // 1000
        us, heard = self._seen
        return us + int((time.monotonic() - heard) * 1e6)

    def _cap(self, sent):
        us, heard = self._bound
        return us + int((sent - heard) * 1_001_000) + 1_000_000

    def _saw(self, us, sent):
        heard = time.monotonic()
        self._seen = (us, heard)
        if self._bound is None or self._cap(sent) - 4_000_000 <= us < self._cap(sent):
            self._bound = (us, heard)


class _Want:
    def __init__(self, limit, key=None, units=1):
        self.limit, self.key, self.units = limit, key, units
        self.bucket = limit if key is None else f"{limit}:{key}"


def _check(want, definition):
    name, rules = want.limit, definition["rules"]
    if definition["keyed"] != (want.key is not None):
        raise LimitError(f"limit {name} {'needs' if definition['keyed'] else 'has no'} key")
    if _has_places(definition) and not definition.get("leased"):
        # Jobs' places would not be counted.
        raise LimitError(f"limit {name} has a concurrency, which only jobs of Sluice can take")
    if not isinstance(want.units, int) or not 0 <= want.units <= min((rule["room"] for rule in rules if rule["drain"] > 0), default=1):
        raise LimitError(f"{want.units} units are not a whole number, or more than limit {name} ever grants at once")


def _has_places(definition):
    return any(rule["drain"] == 0 for rule in definition["rules"])


def _told(definition, around):
    """Converts a definition for the scripts: adds the boundaries of its calendars."""
    rules = [
        {**rule, "periods": [boundaries(rule["calendar"], at) for at in around]} if "calendar" in rule else rule
        for rule in definition["rules"]
    ]
    return {**definition, "rules": rules}


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


# Calendars, as in src/core/calendar.ts and zone.ts. Times are in microseconds; a local time is written as if it were UTC.
MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def boundaries(calendar, at):
    """Returns the begins of five periods: the one before the period of `at`, that period, and three more."""
    try:
        zone = ZoneInfo(calendar["zone"])
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise LimitError(f"this system does not know the zone {calendar['zone']}: install tzdata") from error
    period = functools.partial(_period, calendar["unit"], zone, calendar.get("anchor"))
    start, end = period(at)
    following = period(end)[1]
    return [period(start - 1)[0], start, end, following, period(following)[1]]


def _period(unit, zone, anchor, at):
    if unit not in ("minute", "hour"):
        return _wall_period(unit, zone, anchor, at)
    length = MINUTE if unit == "minute" else HOUR
    origin, ends = _wall_period("day", zone, None, at) if anchor is None else (anchor, None)
    start = origin + (at - origin) // length * length
    return start, start + length if ends is None else min(start + length, ends)


def _wall_period(unit, zone, anchor, at):
    def wall(k):
        return _months_after(origin, k) if unit == "month" else origin + k * length

    length = 7 * DAY if unit == "week" else DAY
    shown = at + _offset(zone, at)
    origin = (4 * DAY if unit == "week" else 0) if anchor is None else anchor + _offset(zone, anchor)
    k = _months(shown) - _months(origin) if unit == "month" else (shown - origin) // length
    if wall(k) > shown:
        k -= 1
    start = _instant(wall(k), zone)
    while True:
        # More than one step if the clocks were set back to before a begin that they had shown.
        k += 1
        end = _instant(wall(k), zone)
        if end > at:
            return start, end
        start = end


def _offset(zone, us):
    """Returns a zone's offset from UTC at a time."""
    return round(datetime.fromtimestamp(us // 1_000_000, zone).utcoffset().total_seconds()) * 1_000_000


def _instant(wall, zone):
    """Returns when clocks first show a local time or, if they are set forward past it, a later one."""
    before = _offset(zone, wall - DAY)
    early = wall - before
    if _offset(zone, early) == before:
        return early
    after = _offset(zone, wall + DAY)
    late = wall - after
    if _offset(zone, late) == after:
        return late
    low, high = late // 1_000_000 * 1_000_000, -(-early // 1_000_000) * 1_000_000
    while high - low > 1_000_000:
        middle = low + (high - low) // 2_000_000 * 1_000_000
        if _offset(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high


def _months(wall):
    date = datetime.fromtimestamp(wall // 1_000_000, timezone.utc)
    return date.year * 12 + date.month - 1


def _months_after(wall, months):
    """Returns the same time of day so many months later, on the same day or on the last day of a shorter month."""
    date = datetime.fromtimestamp(wall // 1_000_000, timezone.utc)
    year, month = divmod(date.year * 12 + date.month - 1 + months, 12)
    next_year, next_month = divmod(year * 12 + month + 1, 12)
    first = datetime(year, month + 1, 1, tzinfo=timezone.utc)
    last = (datetime(next_year, next_month + 1, 1, tzinfo=timezone.utc) - first).days
    return int(first.timestamp()) * 1_000_000 + (min(date.day, last) - 1) * DAY + wall % DAY
