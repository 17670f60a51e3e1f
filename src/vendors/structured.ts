/**
 * The header fields `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers: the current form (a list
 * of policies, from draft 08 on) and that of draft 07 (`limit=100, remaining=50, reset=5`).
 */
import { type Answer, type Count, cleanCount, type CountUnit, countUnits, shortText } from './answer.ts'
import { type Moment, wholeMs } from './time.ts'

type Bare = string | number | boolean

/** A member of a list or dictionary of structured fields (RFC 9651). */
interface Member {
  /** Set in a dictionary. */
  readonly key: string | undefined
  readonly value: Bare
  readonly params: ReadonlyMap<string, Bare>
}

const key = '[a-z*][a-z0-9_.*-]*'
const bare = String.raw`-?\d{1,15}(?:\.\d{1,3})?|"(?:[ !#-\[\]-~]|\\["\\])*"|:[\w+/=]*:|\?[01]|[A-Za-z*][\w!#$%&'*+.^|~:/-]*`
const param = ` *; *${key}(?:=(?:${bare}))?`
const memberForm = new RegExp(`[ \\t]*(?:(${key})=)?(${bare})((?:${param})*)[ \\t]*(,|$)`, 'y')
const paramForm = new RegExp(`; *(${key})(?:=(${bare}))?`, 'g')
/** Longer fields are no field of this kind. */
const lengthMax = 4_096

function bareOf(text: string): Bare {
  if (text.startsWith('"')) return text.slice(1, -1).replaceAll(/\\(.)/g, '$1')
  if (text.startsWith('?')) return text === '?1'
  return /^-?\d/.test(text) ? Number(text) : text
}

/** Returns the members of a field; none when any of it is malformed, as the standard demands. */
function membersOf(text: string | null): Member[] {
  if (text === null || text.length > lengthMax) return []
  const members: Member[] = []
  memberForm.lastIndex = 0
  for (let isLast = false; !isLast;) {
    const match = memberForm.exec(text)
    if (match === null) return []
    const [, name, value = '', params = '', end] = match
    const pairs = [...params.matchAll(paramForm)].map(
      ([, of = '', is]) => [of, is === undefined ? true : bareOf(is)] as const,
    )
    members.push({ key: name, value: bareOf(value), params: new Map(pairs) })
    isLast = end === ''
  }
  return members
}

const numberOf = (value: Bare | undefined) => (typeof value === 'number' ? value : undefined)
const spanOf = (value: Bare | undefined) => (typeof value === 'number' && value >= 0 ? value * 1_000 : undefined)

function unitOf(given: Bare | undefined): CountUnit {
  return given === undefined ? 'requests' : (countUnits.find((unit) => unit === given) ?? 'other')
}

/** Reads the two header fields; none when they are absent or malformed. */
export function ietfCounts({ headers }: Answer, at: Moment): Count[] {
  const policies = membersOf(headers.get('ratelimit-policy'))
  const members = membersOf(headers.get('ratelimit'))
  const counts = members.flatMap(({ key: name, value, params }) => {
    if (name !== undefined) return []
    const of = policies.find((one) => one.value === value)?.params
    return (
      cleanCount({
        policy: shortText(value),
        unit: unitOf(of?.get('qu')),
        limit: numberOf(of?.get('q')),
        remaining: numberOf(params.get('r')),
        resetMs: wholeMs(spanOf(params.get('t')), at),
        windowMs: spanOf(of?.get('w')),
      }) ?? []
    )
  })
  const old = new Map(members.flatMap((member) => (member.key === undefined ? [] : [[member.key, member.value]])))
  const limit = numberOf(old.get('limit'))
  const inDraft7 = cleanCount({
    unit: 'requests',
    limit,
    remaining: numberOf(old.get('remaining')),
    resetMs: wholeMs(spanOf(old.get('reset')), at),
    // In draft 07 the value of a policy is its limit.
    windowMs: spanOf(policies.find((one) => one.value === limit)?.params.get('w')),
  })
  return inDraft7 === undefined ? counts : [...counts, inDraft7]
}
