import type { File } from './repository.ts'
import { names } from './syntax.ts'

// Plain English, as far as a pattern can see it: the field's verbs, and sentences that begin with their subject.

/** Longest line with a comment, in characters. */
const lineMax = 160
/** Verbs of speech, and words of an older private language. Software reads, writes, returns, rejects, notifies. */
const verbs =
  /\b(tells?|told|telling|says?|said|saying|hears?|heard|hearing|asks?|asked|asking|plead\w*|doom\w*|bury|buries|buried|hail\w*|summon\w*|stir(s|red|ring)?)\b/i
/** Verbs of speech, as words of names. */
const speech = /^(ask(s|ed|ing)?|tells?|told|telling|sa(y|ys|id|ying)|hears?|heard|hearing)$/i
/** Beginnings of sentences that are no subject, or one that the reader has to look for. */
const opening =
  /(?:^|[.!?;] |@\w+ )(?:Of (?:a|an|the|each|one|all|what|those)|Who(?:ever|se)?|One (?:that|whose|which|who)) /

/** A comment, or a line of Markdown outside of code. */
interface Prose {
  line: number
  text: string
}

/** Names that consist of verbs of speech: `asked` was a time, a request, a label and a promise, and `told` an error and a number. */
export function spokenNames(file: File): string[] {
  const all = file.path.endsWith('.ts') ? names(file) : (withoutTexts(file.text).match(/[a-z]\w*/gi) ?? [])
  const spoken = all.filter((name) => name.split(/(?=[A-Z])|_/).some((word) => speech.test(word)))
  return [...new Set(spoken)].map((name) => `${file.path}: ${name}`)
}

/** SQL or Lua without comments and literals. */
function withoutTexts(text: string): string {
  return text.replaceAll(/--[^\n]*|'[^']*'/g, '')
}

/** Comments and lines of docs that a reader has to read twice. */
export function obscure(file: File): string[] {
  const isDoc = file.path.endsWith('.md')
  const long = isDoc ? [] : commentLines(file.text).filter(({ text }) => text.length > lineMax)
  return [
    ...long.map(({ line }) => `${file.path}:${line}: a comment on a line of over ${lineMax} characters`),
    ...(isDoc ? docLines(file.text) : comments(file.text)).flatMap(({ line, text }) => {
      const plain = text.replaceAll(/`[^`]*`/g, '``')
      const found = verbs.exec(plain) ?? (plain.includes('?') ? null : opening.exec(plain))
      return found === null ? [] : [`${file.path}:${line}: "${found[0].trim()}"`]
    }),
  ]
}

function docLines(text: string): Prose[] {
  let isCode = false
  return text.split('\n').flatMap((one, i) => {
    if (/^\s*```/.test(one)) isCode = !isCode
    return isCode ? [] : [{ line: i + 1, text: one }]
  })
}

/** Comments, those of several lines as one. */
function comments(text: string): Prose[] {
  const found: Prose[] = []
  let last = -1
  for (const { line, text: whole } of commentLines(text)) {
    const isWhole = /^\s*(--|\/\/|\/?\*)/.test(whole)
    const words = whole.replace(/^.*?(?:--|\/\/|\/\*\*?|^\s*\*\/?)\s?/, '').replace(/\s*\*\/\s*$/, '')
    const block = found.at(-1)
    if (isWhole && block !== undefined && last === line - 1) block.text += ` ${words.trim()}`
    else found.push({ line, text: words.trim() })
    last = isWhole ? line : -1
  }
  return found
}

function commentLines(text: string): Prose[] {
  return text
    .split('\n')
    .map((one, i) => ({ line: i + 1, text: one }))
    .filter(({ text: one }) => /^\s*(--|\/\/|\/\*|\*)(?!\w)|\s(--|\/\/) /.test(one))
}
