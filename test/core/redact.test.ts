import fc from 'fast-check'
import { expect, test } from 'vitest'
import { hideKnown, hideValue, isSecretName, mark, redact, redactField, redactText } from '../../src/core/redact.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'

const jwt = 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9.c2lnbmF0dXJl-_x'
const pem = '-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC==\n-----END RSA PRIVATE KEY-----'
const basic = Buffer.from('user:hunter2').toString('base64')

test.each([
  ['401 for Bearer s3cr3t.x~y', '401 for Bearer [redacted]'],
  ['bearer abcdef', 'bearer [redacted]'],
  [`sent Basic ${basic}, refused`, 'sent Basic [redacted], refused'],
  ['authorization: Bearer abc, def\nnext', 'authorization: [redacted]\nnext'],
  ['Set-Cookie: a=1; Path=/', 'Set-Cookie: [redacted]'],
  ['no route to postgres://app:p@ss@db.example:5432/x', 'no route to postgres://[redacted]@db.example:5432/x'],
  ['https://token@a.example/', 'https://[redacted]@a.example/'],
  ['stripe sk_live_51Habc', 'stripe [redacted]'],
  ['key AKIAIOSFODNN7EXAMPLE.', 'key [redacted].'],
  ['ghp_0123456789abcdef xoxb-123456789', '[redacted] [redacted]'],
  [`jwt ${jwt}!`, 'jwt [redacted]!'],
  [`before ${pem} after`, 'before [redacted] after'],
  [`cut ${pem.slice(0, 40)}`, 'cut [redacted]'],
  ['GET https://a.example/x?token=abc&page=2#top', 'GET https://a.example/x?token=[redacted]&page=2#top'],
  ['https://b.example/?a=1&sig=a%2Bb&se=2', 'https://b.example/?a=1&sig=[redacted]&se=2'],
  ['https://maps.example/?key=abc', 'https://maps.example/?key=[redacted]'],
  ['?X-Amz-Signature=00ff&X-Amz-Expires=60', '?X-Amz-Signature=[redacted]&X-Amz-Expires=60'],
  ['connect host=db password=hunter2 port=1', 'connect host=db password=[redacted] port=1'],
  ['PASSWORD="two words" x', 'PASSWORD=[redacted] x'],
  ['password="a\\" b" x', 'password=[redacted] x'],
  ["password='it\\'s two' x", 'password=[redacted] x'],
  ['password="\\"123', 'password=[redacted]'],
  // One value, as a shell reads it.
  ['password="two "words x', 'password=[redacted] x'],
  ['{"msg":"password=\\"two words\\" x"}', '{"msg":"password=[redacted] x"}'],
  ['{"msg":"token=\\"cut","user":"x"}', '{"msg":"token=[redacted]","user":"x"}'],
  ['callback_url=https://x.example/?token=abcdef123456', 'callback_url=https://x.example/?token=[redacted]'],
  ['msg="login failed password=hunter22"', 'msg="login failed password=[redacted]"'],
  ['connectionString="Server=a;Password=hunter22;"', 'connectionString="Server=a;Password=[redacted];"'],
  ['redirect=/login?access_token=abcdef', 'redirect=/login?access_token=[redacted]'],
  ['a = b = token = abcdef', 'a = b = token = [redacted]'],
  ['API_TOKEN=abc node x', 'API_TOKEN=[redacted] node x'],
  ['body {"user":"a","password":"hun\\"ter2","pin":1}', 'body {"user":"a","password":"[redacted]","pin":1}'],
  ['{"otp":123456,"n":1}', '{"otp":[redacted],"n":1}'],
  [
    JSON.stringify({ text: '{"api_key":"a\\\\b","b":"c"}' }),
    '{"text":"{\\"api_key\\":\\"[redacted]\\",\\"b\\":\\"c\\"}"}',
  ],
  ["{ clientSecret: 'x y', id: 'z' }", "{ clientSecret: '[redacted]', id: 'z' }"],
])('%j becomes %j', (text, shown) => {
  expect(redactText(text)).toBe(shown)
  // In any surrounding text.
  expect(redact({ a: [text] })).toEqual({ a: [shown] })
})

test.each([
  'Unexpected token < in JSON at position 0',
  'Bearer token is missing; bearer authentication required',
  'Basic authentication failed for the Basic plan',
  'https://a.example/@user/x?page=2&sort=key mail a@b.example',
  'it should look like postgres://user:password@host:5432/database',
  'password: must be at least 8 characters',
  'if (token === undefined) token => x; token = null',
  'the key is eyJ, max_tokens=128 next_page_token=abc ?code=404',
  'sk-learn, ASIA-pacific-region, npm_config_registry, SG.example.com, skip',
  '018f3b6e-9c1d-7c3a-8f00-0123456789ab at Object.<anonymous> (/app/tasks.ts:3:14)',
])('"%s" stays as it is', (text) => expect(redactText(text)).toBe(text))

test('names of secrets are recognised in any notation, and no other names', () => {
  const secret =
    'authorization Proxy-Authorization cookie Set-Cookie password passwd PASSWORD userPassword password2 pwd secret client_secret clientSecret token access_token accessToken refresh-token id_token api_key apiKey api-key APIKEY X-Api-Key private_key secretAccessKey_secret passphrase credentials X-Auth-Token csrfToken secrets db.password jwt'
  const open =
    'author token_type max_tokens tokens nextPageToken page_token key id idempotencyKey idempotency-key passenger compass secretary cookieConsent tokenizer keyboard signature status pin'
  expect(secret.split(' ').filter((name) => !isSecretName(name))).toEqual([])
  expect(open.split(' ').filter(isSecretName)).toEqual([])
})

test('fields are redacted by name, and references to secrets are shown', () => {
  const input = {
    headers: { Authorization: 'x', 'X-Api-Key': { $secret: 'crm', prefix: 'Bearer ' }, accept: 'text/plain' },
    json: { password: 12, nested: [{ token: ['a'] }], isSet: { secret: false, cookie: null, token: '' } },
  }
  expect(redact(input)).toEqual({
    headers: { ...input.headers, Authorization: mark },
    json: { password: mark, nested: [{ token: mark }], isSet: { secret: false, cookie: null, token: '' } },
  })
  expect(redact(JSON.parse('{"__proto__":{"password":"x"},"constructor":"y"}'))).toEqual(
    JSON.parse(`{"__proto__":{"password":"${mark}"},"constructor":"y"}`),
  )
})

test('a value that is no JSON is shown as redacted, without an exception', () => {
  const cyclic: Record<string, unknown> = {}
  cyclic['self'] = cyclic
  const hostile = {
    get a(): never {
      throw new Error('no')
    },
  }
  let deep: unknown = 'x'
  for (let i = 0; i < 100_000; i++) deep = [deep]
  for (const value of [cyclic, hostile, deep]) expect(redact(value)).toBe(mark)
  expect([redact(undefined), redact(null), redact(10n as unknown)]).toEqual([null, null, '10'])
  expect(redactField('token', 5n)).toBe(mark)
})

test('a known secret value is found in every encoding, and short values are not searched for', () => {
  const value = `va/lue "with" ${String.fromCharCode(228)} parts`
  hideValue(value)
  const inForm = new URLSearchParams({ value }).toString().slice(6)
  for (const form of [
    value,
    inForm,
    encodeURIComponent(value),
    JSON.stringify(value),
    Buffer.from(value).toString('base64'),
  ])
    expect(redactText(`x ${form} y`)).toMatch(/^x "?\[redacted\]"?=* y$/)
  // Secrets of every length modulo 3, which Base64 pads differently, with bytes that the URL alphabet writes differently.
  for (const secret of ['~~hunter2?>~', '~~hunter2?>~~', '~~hunter2?>~~~'])
    for (const alphabet of ['base64', 'base64url'] as const) {
      hideValue(secret)
      const shown = Buffer.from(secret).toString(alphabet)
      expect(hideKnown(`x${shown}y`)).toBe('x[redacted]y')
      expect(hideKnown(`x ${shown.replaceAll('=', '')} y`)).toBe('x [redacted] y')
    }
  hideValue('abc')
  hideValue('redacted')
  expect(hideKnown('abc redacted')).toBe('abc redacted')
  // A secret that contains another is hidden as a whole.
  hideValue('inner-value')
  hideValue('outer-inner-value-outer')
  expect(hideKnown('outer-inner-value-outer')).toBe(mark)
})

const words =
  String.raw`token password Bearer Basic authorization : = " ' \ \" & ? https:// @ / ; , { } [ ] [redacted] sk_live_ x
  eyJabcdefg . - abcdefgh key sig 5 cookie é`.split(/\s+/)
const blocks = ['-----BEGIN PRIVATE KEY-----', '-----END PRIVATE KEY-----', ' ', '\n', '\ud800', '\u0000', basic]
const pieces = fc.constantFrom(...words, ...blocks)
const texts = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.array(pieces, { maxLength: 30 }).map((parts) => parts.join('')),
)

test('a second redaction changes nothing more', () => {
  const isSettled = fc.property(texts, (text) => {
    expect(redactText(redactText(text))).toBe(redactText(text))
  })
  fc.assert(isSettled, { numRuns: cases(3_000) })
  forAll(fc.jsonValue(), (value) => {
    expect(redact(redact(value))).toEqual(redact(value))
  })
})

test('words and values without a secret stay unchanged', () => {
  const word = fc.stringMatching(/^[a-df-z]{1,12}$/).filter((text) => !isSecretName(text) && !/bearer|basic/.test(text))
  const harmless = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      fc.integer(),
      fc.boolean(),
      fc.constant(null),
      fc.array(word).map((words) => words.join(' ')),
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(word, tie('value'), { maxKeys: 3 }),
    ),
  })).value
  forAll(harmless, (value) => {
    expect(redact(value)).toEqual(JSON.parse(JSON.stringify(value)))
  })
})

const repeated = String.raw`a " \ \" = token= token=" token:' "token":" a: :// ://a x://a@ eyJ eyJ- eyJabcdefg. Basic_a cookie: sk_live_
  ?key= a. a- [ [redacted] \\"token\\" -----BEGIN_PRIVATE_KEY----- -----BEGIN_ Bearer_ cookie:_ password_=_ _`

test.each(repeated.split(/\s+/))(
  'a long text of %j is redacted in time linear in its length',
  (word) => {
    // Work that grows with the square of the length would take minutes.
    const piece = word.replaceAll('_', ' ')
    const text = piece.repeat(Math.ceil(400_000 / piece.length))
    expect(redactText(text)).toBeTypeOf('string')
    expect(redactText(`${text}!`)).toBeTypeOf('string')
  },
  60_000,
)
