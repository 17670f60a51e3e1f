/** Converts the cells of a row to a task's input: the task's schema decides whether a cell is a text, a number, or left out. */
import { many } from '../core/figures.ts'
import { UsageError } from '../core/errors.ts'
import type { AnyTask } from '../tasks/task.ts'

type Cell = { is: 'text' | 'other' | 'absent'; value: unknown }

/**
 * Converts cells to an input. It first tries all cells as texts. A cell that the schema rejects is then parsed as JSON (a
 * number, true, null, an object), or left out if it is empty. A column `a.b` is the field b inside a.
 * @throws UsageError SLUICE_BAD_ROW when cells and columns do not match
 */
export async function inputOf(task: AnyTask, columns: readonly string[], cells: readonly string[]): Promise<unknown> {
  if (cells.length !== columns.length) {
    throw new UsageError(
      'SLUICE_BAD_ROW',
      `it has ${many(cells.length, 'cell')} under ${many(columns.length, 'column')}`,
    )
  }
  const paths = columns.map((column) => column.split('.'))
  const texts = cells.map((value): Cell => ({ is: 'text', value }))
  let made = texts
  for (;;) {
    const input = build(paths, made)
    const { issues } = await task.schema['~standard'].validate(input)
    if (issues === undefined) return input
    const named = issues.map(({ path = [] }) => path.map((part) => String(typeof part === 'object' ? part.key : part)))
    const isNamed = (path: string[]) => named.some((other) => isWithin(path, other) || isWithin(other, path))
    const next = made.map((cell, i) => {
      if (cell.is !== 'text' || !isNamed(paths[i] as string[])) return cell
      return otherwise(cell.value as string) ?? cell
    })
    // No cell is left to convert. If no issue names a field, the input of texts gives the clearest error.
    if (next.every((cell, i) => cell === made[i]))
      return named.every((path) => path.length === 0) ? build(paths, texts) : input
    made = next
  }
}

/** Returns whether `path` is `outer` or inside it; an issue without a path may be about any field. */
function isWithin(path: readonly string[], outer: readonly string[]): boolean {
  return outer.every((part, i) => path[i] === part)
}

/** Returns what a text may mean other than itself; undefined: nothing. */
function otherwise(text: string): Cell | undefined {
  if (text === '') return { is: 'absent', value: undefined }
  try {
    const value: unknown = JSON.parse(/^(true|false|null)$/i.test(text) ? text.toLowerCase() : text)
    // It is not exact: a number that JSON cannot hold, such as an id of 19 digits.
    const isExact = typeof value !== 'number' || !/^-?\d+$/.test(text.trim()) || String(value) === text.trim()
    return typeof value !== 'string' && isExact ? { is: 'other', value } : undefined
  } catch {
    return undefined
  }
}

function build(paths: readonly string[][], cells: readonly Cell[]): Record<string, unknown> {
  // Without a prototype, so that a column may have any name.
  const root = Object.create(null) as Record<string, unknown>
  for (const [i, { is, value }] of cells.entries()) {
    if (is === 'absent') continue
    const path = paths[i] as string[]
    let inner = root
    for (const part of path.slice(0, -1)) inner = (inner[part] ??= Object.create(null)) as Record<string, unknown>
    inner[path.at(-1) as string] = value
  }
  return root
}
