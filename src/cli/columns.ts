/** Aligns the columns of a table, and cuts cells so that its lines fit the terminal. */

const gap = 2
/** Cells are not cut below this. */
const least = 8
/** Nor below this those of the first column, which has names, of the last one, which has texts, and ids. */
const leastOfNames = 14
/** The heading of ids: these are cut at their beginning, since ids of one time begin alike. Commands take the rest. */
const ofIds = 'ID'

type Rows = readonly (readonly string[])[]

/** Returns the width to fit: that of the terminal, or COLUMNS; undefined: whatever it takes. */
export function widthOf(): number | undefined {
  const given = Number(process.env['COLUMNS'])
  if (process.stdout.isTTY) return process.stdout.columns || 80
  return given > 0 ? given : undefined
}

/**
 * Aligns rows, the first of which is the heading. Where too little would be left of the cells, each row is a block, with a line for
 * each cell.
 * @param width the most characters of a line; undefined: no bound
 * @param spare headings of columns that are left out, the first one first, until the lines fit; a block has them
 * @param paint paints headings
 */
export function aligned(
  rows: Rows,
  width?: number,
  spare: readonly string[] = [],
  paint: (heading: string) => string = (heading) => heading,
): string[] {
  let shown = rows
  let widths = widthsOf(rows)
  for (const name of spare) {
    if (width === undefined || lengthOf(widths) <= width) break
    const at = shown[0]?.indexOf(name) ?? -1
    if (at < 0) continue
    shown = shown.map((row) => row.toSpliced(at, 1))
    widths = widthsOf(shown)
  }
  const heads = shown[0] ?? []
  if (width !== undefined) {
    const bounds = widths.map((one, column) => {
      const isName = column === 0 || column === heads.length - 1 || heads[column] === ofIds
      return Math.min(one, isName ? leastOfNames : least)
    })
    if (lengthOf(bounds) > width) return blocks(rows, width, paint)
    widths = fitted(widths, bounds, width)
  }
  const lines = shown.map((row) =>
    row
      .map((cell, column) => cut(cell, widths[column] ?? 0, heads[column] === ofIds).padEnd(widths[column] ?? 0))
      .join(' '.repeat(gap))
      .trimEnd(),
  )
  return lines.map((line, row) => (row === 0 ? paint(line) : line))
}

function blocks([heads = [], ...rows]: Rows, width: number, paint: (heading: string) => string): string[] {
  const column = heads.reduce((most, { length }) => Math.max(most, length), 0) + gap
  return rows.flatMap((row, at) => [
    ...(at === 0 ? [] : ['']),
    ...row.flatMap((cell, i) => {
      const name = heads[i] ?? ''
      const text = name === ofIds ? cut(cell, Math.max(leastOfNames, width - column), true) : cell
      return text === '' ? [] : [`${paint(name.padEnd(column))}${text}`]
    }),
  ])
}

const widthsOf = (rows: Rows) =>
  (rows[0] ?? []).map((_, column) => rows.reduce((most, row) => Math.max(most, row[column]?.length ?? 0), 0))

const lengthOf = (widths: readonly number[]) => widths.reduce((sum, one) => sum + one, gap * (widths.length - 1))

/** Takes from the widest column, one character at a time, until the line fits. */
function fitted(natural: readonly number[], bounds: readonly number[], width: number): number[] {
  const widths = [...natural]
  for (let left = lengthOf(widths) - width; left > 0; left--) {
    const spare = widths.map((one, column) => one - (bounds[column] ?? 0))
    const widest = spare.indexOf(Math.max(...spare))
    widths[widest] = (widths[widest] ?? 0) - 1
  }
  return widths
}

function cut(cell: string, width: number, isId: boolean): string {
  if (cell.length <= width) return cell
  const most = Math.max(0, width - 1)
  return isId ? `…${cell.slice(cell.length - most)}` : `${cell.slice(0, most)}…`
}
