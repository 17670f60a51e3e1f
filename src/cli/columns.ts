/** Aligns the columns of a table, and cuts cells so that its lines fit the terminal. */

const gap = 2
/** Cells are not cut below this; those of the first column, which has names, and ids not below the second. */
const least = 6
const firstLeast = 14
/** The heading of ids: these are cut at their beginning, since ids of one time begin alike. Commands take the rest. */
const ofIds = 'ID'

/** Returns the width to fit: that of the terminal, or COLUMNS; undefined: whatever it takes. */
export function widthOf(): number | undefined {
  const given = Number(process.env['COLUMNS'])
  if (process.stdout.isTTY) return process.stdout.columns || 80
  return given > 0 ? given : undefined
}

/**
 * Aligns rows, the first of which is the heading.
 * @param width the most characters of a line; undefined: no bound
 * @param spare headings of columns that are left out, the first one first, until the lines fit
 */
export function aligned(rows: readonly (readonly string[])[], width?: number, spare: readonly string[] = []): string[] {
  const natural = (rows[0] ?? []).map((_, column) =>
    rows.reduce((most, row) => Math.max(most, row[column]?.length ?? 0), 0),
  )
  const [least, ...others] = spare
  const at = rows[0]?.indexOf(least ?? '') ?? -1
  if (width !== undefined && at >= 0 && lengthOf(natural) > width)
    return aligned(
      rows.map((row) => row.toSpliced(at, 1)),
      width,
      others,
    )
  const heads = rows[0] ?? []
  const widths = width === undefined ? natural : fitted(natural, width, heads.indexOf(ofIds))
  return rows.map((row) =>
    row
      .map((cell, column) => cut(cell, widths[column] ?? 0, heads[column] === ofIds).padEnd(widths[column] ?? 0))
      .join(' '.repeat(gap))
      .trimEnd(),
  )
}

const lengthOf = (widths: readonly number[]) => widths.reduce((sum, one) => sum + one, gap * (widths.length - 1))

/** Takes from the widest column, one character at a time, until the line fits. */
function fitted(natural: readonly number[], width: number, idsAt: number): number[] {
  const widths = [...natural]
  for (let left = lengthOf(widths) - width; left > 0; left--) {
    const spare = widths.map((one, column) => one - (column === 0 || column === idsAt ? firstLeast : least))
    const widest = spare.indexOf(Math.max(...spare))
    if ((spare[widest] ?? 0) <= 0) break
    widths[widest] = (widths[widest] ?? 0) - 1
  }
  return widths
}

function cut(cell: string, width: number, isId: boolean): string {
  if (cell.length <= width) return cell
  const most = Math.max(0, width - 1)
  return isId ? `…${cell.slice(cell.length - most)}` : `${cell.slice(0, most)}…`
}
