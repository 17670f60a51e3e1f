/** Removes secrets from text: by the names of fields, by the formats of well-known tokens, and by registered values. */

/** Replaces a secret. */
export const mark = '[redacted]'

const wholeNames: ReadonlySet<string> = new Set(
  [
    'authorization',
    'bearer',
    'credential',
    'credentials',
    'cvc',
    'cvv',
    'jwt',
    'otp',
    'pass',
    'pwd',
    'sessionid',
  ].flatMap((name) => [name, `x${name}`]),
)
const nameEnds =
  /(?:(?:password|passwd|passphrase|passcode|secret|token)s?(?:hash|value|confirm|confirmation|\d{1,2})?|(?:api|access|auth|private|secret|signing|encryption)key|authorization|cookies?)$/
/** Names that end like secrets, but mean a count of tokens or a position in a list. */
const harmless = /(?:tokens|(?:page|next|previous|prev|continuation|sync|cursor|cancellation)token)$/
/** Secret in the query of a URL; elsewhere these names have too many other meanings. */
const queryNames: ReadonlySet<string> = new Set(['key', 'sig', 'signature', 'hmac', 'xamzsignature', 'xgoogsignature'])
const emptyValue = /^(?:null|undefined|true|false|none)$/i
/** Words that follow "Bearer" in sentences. */
const plainWord =
  /^(?:an?|and|auth|authentication|authorization|challenge|credentials?|error|expired|format|headers?|in|invalid|is|missing|not|or|realm|required|scheme|tokens?|was|with)[.:=]?$/i

// Each pattern starts only at the start of a run of its characters, and its repetitions exclude what ends them, so no
// text is scanned more than a constant number of times.
const privateKey = /-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|$)/g
// Excludes the example in Sluice's own messages.
const userInfo = /(?<=:\/\/)(?!user:password@)[^\s/?#"'<>\\]*@/g
const headerLine =
  /(?<![\w-])((?:proxy-)?authorization|(?:set-)?cookie|x-api-key|x-auth-token)(\s{0,4}:\s{0,4})(?!["'[{\s])[^\r\n"'\\]+/gi
const scheme = /(?<![\w-])(bearer|basic)(\s{1,4})([\w.~+/=:-]+)/gi
const jwt = /(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)*/g
const wellKnown =
  /(?<![\w-])(?:[rs]k_(?:live|test)_\w+|whsec_[\w+/=]{8,}|gh[opsur]_\w{8,}|github_pat_\w{8,}|glpat-[\w-]{8,}|xox[abeprs]-[\w-]{8,}|shp[ac]t_\w{8,}|npm_[A-Za-z0-9]{36}|ya29\.[\w-]{8,}|SG\.[\w-]{16,}\.[\w-]{16,}|AIza[\w-]{30,}|sk-[\w-]{20,}|A[KS]IA[A-Z0-9]{16})(?![\w-])/g
const assigned = /(?<![\w.-])([\w.-]{1,64})\s{0,2}=(?!=)\s{0,2}/g
const assignedValue = /(?:[^\s&;"'<>\\]|\\(?![\\"'nrt]))+/y
const assignedQuote = /(\\{0,8})(["'])/y
const parameter = /(?<=[?&;])([\w.%-]{1,64})(=)([^\s&;"'<>#\\]+)/g
const number = /(?<![\w.-])([\w.-]{1,64})(\\{0,8}["']\s{0,4}:\s{0,4})(-?\d[\w.+-]*)/g
const quoted = /(?<![\w.-])([\w.-]{1,64})\\{0,8}["']?\s{0,4}:\s{0,4}(\\{0,8})(["'`])/g

/** True for the name of a field, header or parameter whose value is a secret: `Authorization`, `api_key`, `clientSecret`. */
export function isSecretName(name: string): boolean {
  if (name.length > 100) return false
  const flat = flatten(name)
  return wholeNames.has(flat) || (nameEnds.test(flat) && !harmless.test(flat))
}

/** Shorter values would occur in ordinary text. */
const shortest = 6
const valuesMax = 7_000
function flatten(name: string): string {
  return name.toLowerCase().replaceAll(/[^a-z0-9]/g, '')
}

const values = new Set<string>()
/** The longest come first: one value may be part of another. */
let byLength: readonly string[] = []

/**
 * Registers a value: from now on this process replaces it in every redacted text, also as part of a URL, a form, JSON, or
 * as Base64 of either alphabet. Values shorter than 6 characters are ignored; beyond about a thousand the oldest are
 * forgotten.
 */
export function hideValue(value: string): void {
  if (value.length < shortest) return
  const whole = value.toWellFormed()
  const base64 = Buffer.from(whole).toString('base64')
  const form = new URLSearchParams({ a: value }).toString().slice(2)
  const inJson = JSON.stringify(value).slice(1, -1)
  const base64url = Buffer.from(whole).toString('base64url')
  const forms = [value, encodeURIComponent(whole), form, inJson, base64, base64.replace(/=+$/, ''), base64url]
  const isNew = !values.has(value)
  for (const text of forms.filter((one) => !mark.includes(one))) {
    values.delete(text)
    values.add(text)
  }
  if (!isNew) return
  for (const oldest of values) if (values.size > valuesMax) values.delete(oldest)
  byLength = [...values].toSorted((one, other) => other.length - one.length)
}

/** Replaces the values that were registered with `hideValue`, and nothing else. */
export function hideKnown(text: string): string {
  return byLength.reduce((out, value) => (out.includes(value) ? out.replaceAll(value, mark) : out), text)
}

/** Returns a text without its secrets; all else is unchanged. Takes time proportional to its length, and never throws. */
export function redactText(text: string): string {
  let out = hideKnown(text)
  // A replacement may bring together the parts of another secret.
  for (let round = 0; round < 8; round++) {
    const before = out
    out = redactOnce(before)
    if (out === before) break
  }
  return out
}

/**
 * Returns the beginning of a value's text, at most so many characters, without secrets and as the store can keep it. It reads more
 * than it keeps, because a secret that is cut in half is not recognised.
 */
export function storableText(value: unknown, charactersMax: number): string {
  const shown = redactText(String(value).slice(0, 4 * charactersMax)).slice(0, charactersMax)
  return shown.replaceAll('\u0000', '\ufffd').toWellFormed()
}

function redactOnce(text: string): string {
  const out = text
    .replace(privateKey, mark)
    .replace(userInfo, `${mark}@`)
    .replace(headerLine, `$1$2${mark}`)
    .replace(scheme, (whole: string, name: string, space: string, value: string) =>
      isCredential(name, value) ? `${name}${space}${mark}` : whole,
    )
    .replace(jwt, mark)
    .replace(wellKnown, mark)
    .replace(
      parameter,
      hideValueOf((name) => queryNames.has(flatten(name))),
    )
  return hideQuoted(hideAssigned(out).replace(number, hideValueOf(isSecretName)))
}

function hideValueOf(isSecret: (name: string) => boolean) {
  return (whole: string, name: string, is: string, value: string) =>
    isSecret(name) && !emptyValue.test(value) ? `${name}${is}${mark}` : whole
}

/** "Basic" is an ordinary word; credentials after it are Base64 of `user:password`. */
function isCredential(name: string, value: string): boolean {
  if (name.toLowerCase() === 'bearer') return !plainWord.test(value)
  const text = Buffer.from(value, 'base64').toString('latin1')
  return text.includes(':') && /^[\x20-\x7e\x80-\xff]+$/.test(text)
}

/**
 * Hides the values of assignments such as `password=…`. A value that is not secret is searched for further names:
 * `url=https://a.example/?token=…`.
 */
function hideAssigned(text: string): string {
  let out = ''
  let from = 0
  assigned.lastIndex = 0
  for (let found = assigned.exec(text); found !== null; found = assigned.exec(text)) {
    if (!isSecretName(found[1] ?? '')) continue
    const begin = assigned.lastIndex
    const end = endOfAssigned(text, begin)
    if (end === begin) continue
    const value = text.slice(begin, end)
    out += text.slice(from, begin) + (emptyValue.test(value) ? value : mark)
    assigned.lastIndex = from = end
  }
  return from === 0 ? text : out + text.slice(from)
}

/** Returns the end of the value assigned at `begin`, with its quotes; `begin` when there is no value. */
function endOfAssigned(text: string, begin: number): number {
  assignedQuote.lastIndex = assignedValue.lastIndex = begin
  const [open, escape = '', quote = ''] = assignedQuote.exec(text) ?? []
  if (open === undefined) return begin + (assignedValue.exec(text)?.[0].length ?? 0)
  const end = endOfQuotation(text, begin + open.length, quote, escape.length)
  return text.startsWith(open, end) ? end + open.length : end
}

/** Hides values such as `"password": "…"`, in JSON, in JSON within JSON, and in console output. */
function hideQuoted(text: string): string {
  let out = ''
  let from = 0
  quoted.lastIndex = 0
  for (let found = quoted.exec(text); found !== null; found = quoted.exec(text)) {
    const [whole, name = '', escape = '', quote = ''] = found
    if (!isSecretName(name)) continue
    const begin = found.index + whole.length
    const end = endOfQuotation(text, begin, quote, escape.length)
    out += text.slice(from, begin) + (end > begin ? mark : '')
    from = end
    quoted.lastIndex = end
  }
  return from === 0 ? text : out + text.slice(from)
}

/**
 * Returns the end of the quotation that starts at `begin`: the next such quote with at most `escapes` backslashes before
 * it.
 */
function endOfQuotation(text: string, begin: number, quote: string, escapes: number): number {
  for (let at = text.indexOf(quote, begin); at !== -1; at = text.indexOf(quote, at + 1)) {
    let slashes = 0
    while (at - slashes > begin && text[at - slashes - 1] === '\\') slashes++
    if (slashes <= escapes || (escapes === 0 && slashes % 2 === 0)) return at - Math.min(slashes, escapes)
  }
  return text.length
}

/** Returns the value of one field without its secrets; also usable as the second argument of `JSON.stringify`. */
export function redactField(name: string, value: unknown): unknown {
  if (typeof value === 'bigint') return redactField(name, String(value))
  const isShown =
    value === null || value === '' || typeof value === 'boolean' || value === undefined || isReference(value)
  if (!isShown && name !== '$secret' && isSecretName(name)) return mark
  return typeof value === 'string' ? redactText(value) : value
}

/** True for a reference to a secret: it holds only a name, which may be shown. */
function isReference(value: unknown): boolean {
  return typeof value === 'object' && value !== null && '$secret' in value
}

/** Returns a copy of a JSON value without its secrets. Never throws: what is not JSON is replaced as a whole. */
export function redact<T>(value: T): T {
  try {
    return JSON.parse(JSON.stringify(value, redactField) ?? 'null') as T
  } catch {
    return mark as T
  }
}
