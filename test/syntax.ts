import { basename, posix } from 'node:path'
import { parseSync, type Comment } from 'oxc-parser'
import type { File } from './repository.ts'

type Node = { type: string; start: number; end: number; [key: string]: unknown }
interface Syntax {
  body: Node[]
  all: Node[]
  comments: Comment[]
}

const parsed = new Map<File, Syntax>()

function parse(file: File): Syntax {
  const known = parsed.get(file)
  if (known) return known
  const { program, comments, errors } = parseSync(basename(file.path), file.text)
  if (errors.length > 0) throw new Error(`${file.path}: ${errors[0]?.message}`)
  const all: Node[] = []
  const visit = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return
    if ('type' in value && typeof value.type === 'string') all.push(value as Node)
    Object.values(value).forEach(visit)
  }
  visit(program)
  const syntax = { body: program.body as unknown as Node[], all, comments }
  parsed.set(file, syntax)
  return syntax
}

/** The files that a file imports or re-exports from, types and dynamic imports included; packages are left out. */
export function imports(file: File): string[] {
  return parse(file)
    .all.map((node) => (node['source'] as Node | null | undefined)?.['value'])
    .filter((from) => typeof from === 'string' && from.startsWith('.'))
    .map((from) => posix.join(posix.dirname(file.path), from as string))
}

/** One line for each cycle among files. */
export function cycles(edges: Map<string, string[]>): string[] {
  const found: string[] = []
  const finished = new Set<string>()
  const visit = (path: string, trail: string[]): void => {
    if (trail.includes(path)) found.push([...trail.slice(trail.indexOf(path)), path].join(' -> '))
    else if (!finished.has(path)) for (const next of edges.get(path) ?? []) visit(next, [...trail, path])
    finished.add(path)
  }
  for (const path of edges.keys()) visit(path, [])
  return found
}

/**
 * The texts of a file for people: literals and templates of several words, and whatever is logged or printed. SQL is left
 * out. Values are in braces: an expression, or the texts between which one decides.
 */
export function messages(file: File): string[] {
  if (file.path.endsWith('.sql'))
    return [...file.text.matchAll(/raise_error\(\s*'(\w+)',\s*([^;]*?)\);/g)].map(([, code, text]) =>
      oneLine(`${code}: ${text}`),
    )
  const found: string[] = []
  const visit = (value: unknown, isPrinted = false): void => {
    if (typeof value !== 'object' || value === null) return
    if (Array.isArray(value)) return value.forEach((one) => visit(one, isPrinted))
    const node = value as Node
    if (/^(TS(?!As|Satisfies|NonNull)|Import)/.test(node.type)) return
    const text = isText(node) ? oneLine(written(file, node)) : ''
    const isSentence = /[a-z…"')}] [a-z("'{]/i.test(text.replaceAll(/\{[^}]*\}/g, '{}')) && !sqlText.test(text)
    if (text !== '' && (isSentence || isPrinted)) return void found.push(text)
    const callee = node['callee'] as Node | undefined
    const prints = callee !== undefined && printers.test(file.text.slice(callee.start, callee.end))
    for (const [name, inner] of Object.entries(node)) visit(inner, prints && name === 'arguments')
  }
  visit(parse(file).body)
  return found
}

const printers = /(\blog|\bout)\??\.(debug|info|warn|error|line|talk|hint)$/
const sqlText =
  /^\(?(select\b.*(\bfrom\b|::|\(|\b1\b)|update [a-z.]+ set|insert into|delete from|(create|drop) (table|schema)|set local|(un)?listen |vacuum \{)|^[a-z]+(\[\])?( (bigint|integer|text|uuid|boolean|jsonb)(\[\])?)+$|\bfrom (sluice|engine|pg_)/i

function oneLine(text: string): string {
  return text.replaceAll(/\s*\n\s*/g, ' ').trim()
}

function isText({ type, ...node }: Node): boolean {
  if (type === 'BinaryExpression')
    return node['operator'] === '+' && [node['left'], node['right']].some((side) => isText(side as Node))
  return type === 'TemplateLiteral' || (type === 'Literal' && typeof node['value'] === 'string')
}

/** Returns a text with its values in braces. */
function written(file: File, node: Node): string {
  const of = (name: string) => written(file, node[name] as Node)
  if (node.type === 'Literal' && typeof node['value'] === 'string') return node['value']
  if (node.type === 'TemplateLiteral') {
    const values = node['expressions'] as Node[]
    const parts = node['quasis'] as { value: { cooked: string } }[]
    return parts
      .map(({ value }, i) => `${value.cooked}${values[i] === undefined ? '' : written(file, values[i])}`)
      .join('')
  }
  if (isText(node)) return `${of('left')}${of('right')}`
  if (node.type === 'ConditionalExpression') return `{${of('consequent')}|${of('alternate')}}`
  const text = oneLine(file.text.slice(node.start, node.end))
  return `{${text.length <= 40 ? text : `${text.slice(0, 39)}…`}}`
}

/** Where a file, or a function in it, has more lines than allowed. Functions of tests are lists of cases: any length. */
export function tooLong(file: File, fileMax: number, functionMax: number): string[] {
  const count = lines(file.text.replace(/\n$/, ''))
  const whole = count > fileMax ? [`${file.path} has ${count} lines`] : []
  if (file.path.endsWith('.test.ts')) return whole
  const longer = functions(file).filter((text) => lines(text) > functionMax)
  return [
    ...whole,
    ...longer.map((text) => `${file.path} has a function of ${lines(text)} lines: ${text.slice(0, 40).trim()}`),
  ]
}

function functions(file: File): string[] {
  if (file.path.endsWith('.sql'))
    return [...file.text.matchAll(/\$(\w*)\$([^]*?)\$\1\$/g)].map((match) => match[2] ?? '')
  if (file.path.endsWith('.lua')) return file.text.match(/^local function[^]*?^end/gm) ?? []
  const isFunction = /^(FunctionDeclaration|FunctionExpression|ArrowFunctionExpression)$/
  return parse(file)
    .all.filter((node) => isFunction.test(node.type))
    .map((node) => file.text.slice(node.start, node.end))
}

function lines(text: string): number {
  return text.split('\n').length
}

/** Exported declarations without a doc comment directly above; the overloads of a function share the first one's. */
export function undocumented(file: File): string[] {
  const { body, comments } = parse(file)
  const exported = body.filter(({ type, declaration }) => /^Export(Named|Default)/.test(type) && declaration)
  const isDocumented = ({ start }: Node) =>
    comments.some(
      ({ type, value, end }) => type === 'Block' && value.startsWith('*') && file.text.slice(end, start).trim() === '',
    )
  const documented = new Set(exported.filter(isDocumented).map(nameOf))
  return exported
    .map(nameOf)
    .filter((name) => !documented.has(name))
    .map((name) => `${file.path}: ${name}`)
}

function nameOf({ declaration }: Node): string {
  const { id, declarations } = declaration as {
    id?: { name: string } | null
    declarations?: { id: { name: string } }[]
  }
  return id?.name ?? declarations?.map((each) => each.id.name).join(', ') ?? 'default'
}

/** What a file calls: `f`, `object.method`, and `new Class` where it is made without arguments. */
export function calls(file: File): string[] {
  return parse(file).all.flatMap((node) => {
    const callee = node['callee'] as Node | undefined
    if (!callee) return []
    const name = file.text.slice(callee.start, callee.end)
    if (node.type === 'CallExpression') return [name]
    return (node['arguments'] as Node[]).length === 0 ? [`new ${name}`] : []
  })
}

/** The names in a file's code, each as often as it occurs. */
export function names(file: File): string[] {
  return parse(file).all.flatMap(({ type, name }) =>
    (type === 'Identifier' || type === 'PrivateIdentifier') && typeof name === 'string' ? [name] : [],
  )
}

/** True where a file waits for time to pass: a promise around setTimeout, the timers' promises, a clock's sleep. */
export function sleeps(file: File): boolean {
  if (/from 'node:timers\/promises'/.test(file.text) && file.path.endsWith('.ts') && parse(file).body.some(isTimers))
    return true
  return parse(file).all.some((node) => {
    const callee = node['callee'] as Node | undefined
    const name = callee ? file.text.slice(callee.start, callee.end) : ''
    const given = (node['arguments'] as Node[] | undefined)?.[0]
    const isExecutor = name === 'Promise' && given !== undefined
    return (
      name === 'systemClock.sleep' ||
      (isExecutor && /\bsetTimeout\(\s*\w+\s*,/.test(file.text.slice(given.start, given.end)))
    )
  })
}

function isTimers(node: Node): boolean {
  return (node['source'] as Node | null | undefined)?.['value'] === 'node:timers/promises'
}
