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
