import { PassThrough } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { barOn } from '../../src/cli/bar.ts'
import { confirm } from '../../src/cli/bulk.ts'
import { inputOf } from '../../src/cli/cells.ts'
import { openTable, type TableRow } from '../../src/cli/table.ts'
import { type AnyTask, task } from '../../src/index.ts'
import { forAllInTime } from '../for-all.ts'

async function* inPieces(text: string | Buffer, size: number): AsyncGenerator<Buffer> {
  const bytes = Buffer.from(text)
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

async function read(text: string | Buffer, size = 7): Promise<{ columns: string[] | undefined; rows: TableRow[] }> {
  const table = await openTable(inPieces(text, size), 'a file')
  const rows: TableRow[] = []
  for await (const row of table.rows) rows.push(row)
  return { columns: table.columns, rows }
}

const quoted = (cell: string) => `"${cell.replaceAll('"', '""')}"`

describe('rows of a file', () => {
  it('contain any cells as they were written, with the line where each row begins', async () => {
    const cell = fc.string({ unit: fc.constantFrom('a', 'ä', '"', ',', ';', '\n', ' ', '7') })
    const rows = fc.array(fc.tuple(cell, cell, cell), { maxLength: 12 })
    await forAllInTime(
      100,
      rows,
      fc.constantFrom(',', ';', '\t'),
      fc.constantFrom('\n', '\r\n'),
      fc.integer({ min: 1, max: 40 }),
      async (cells, delimiter, end, size) => {
        const lines = cells.map((row) => row.map(quoted).join(delimiter))
        const found = await read(
          `\ufeff${['a', 'b', 'c'].join(delimiter)}${end}${lines.map((line) => line + end).join('')}`,
          size,
        )
        expect(found.columns).toEqual(['a', 'b', 'c'])
        expect(found.rows.map((row) => row.cells)).toEqual(cells)
        let line = 2
        for (const [i, row] of found.rows.entries()) {
          expect(row).toMatchObject({ line, raw: lines[i] })
          line += (lines[i] as string).split('\n').length
        }
      },
    )
  })

  it('keep a CR within quotes, and report one outside of them, so that no row is lost', async () => {
    const text = ['name,n', '"a\rb",1', '"c",2\r"d",3', 'e\rf,4', '"g",h\ri', '"j",5', ''].join('\n')
    const { rows } = await read(text)
    expect(rows.map(({ line, cells }) => [line, cells])).toEqual([
      [2, ['a\rb', '1']],
      [3, undefined],
      [4, undefined],
      [5, undefined],
      [6, ['j', '5']],
    ])
    for (const row of rows) expect(row.problem === undefined).toBe(row.cells !== undefined)
    const old = read('name,n\r"a",1\r"b",2\r')
    await expect(old).rejects.toMatchObject({
      code: 'SLUICE_BAD_FILE',
      message: expect.stringContaining('by CR alone'),
    })
  })

  it('with unmatched quotes count as one bad row, and the rows behind them are read', async () => {
    const bad = ['5" pipe,1', '"Bob "The Man" Smith",2', '"open,3', 'x,"y']
    const text = ['name,n', 'a,1', bad[0], 'b,2', '', bad[1], 'c,"3', '3"', bad[2], 'd,4', bad[3], 'e,5'].join('\n')
    const { rows } = await read(text)
    expect(rows.filter((row) => row.problem !== undefined).map((row) => row.raw)).toEqual(bad)
    expect(rows.flatMap((row) => (row.cells === undefined ? [] : [[row.line, ...row.cells]]))).toEqual([
      [2, 'a', '1'],
      [4, 'b', '2'],
      [7, 'c', '3\n3'],
      [10, 'd', '4'],
      [12, 'e', '5'],
    ])
  })

  it('are NDJSON if the first line is JSON, and a bad line is one bad row', async () => {
    const { columns, rows } = await read('\n{"a":1}\n{"a":\n\n{"a":3}')
    expect(columns).toBeUndefined()
    expect(rows).toMatchObject([
      { line: 2, value: { a: 1 } },
      { line: 3, raw: '{"a":', problem: expect.stringContaining('not JSON') },
      { line: 5, value: { a: 3 } },
    ])
  })

  it('are refused with advice when the file is no table', async () => {
    const bad: [string | Buffer, string][] = [
      ['', 'is empty'],
      ['[{"a":1}]', 'jq'],
      ['a,a\n1,2', 'twice'],
      ['a,\n1,2', 'column 2'],
      ['a,a.b\n1,2', 'inside'],
      ['"a\n1,2', 'heading'],
      [Buffer.from('a,b\nM\u00fcller,2', 'latin1'), 'near line 2; convert it'],
    ]
    for (const [text, says] of bad)
      await expect(read(text), says).rejects.toMatchObject({
        code: 'SLUICE_BAD_FILE',
        message: expect.stringContaining(says),
      })
  })
})

describe('cells as an input', () => {
  const made = (schema: z.ZodType, row: Record<string, string>) =>
    inputOf(
      task('t', { input: schema, run: () => 1 }) as unknown as AnyTask,
      Object.keys(row),
      Object.values(row),
    ).then((input) => JSON.parse(JSON.stringify(input)) as unknown)

  it('get their types from the schema', async () => {
    const schema = z.object({
      zip: z.string(),
      n: z.number(),
      isOld: z.boolean().optional(),
      note: z.string().optional(),
      left: z.number().optional(),
      address: z.object({ city: z.string(), floor: z.number() }).optional(),
      list: z.array(z.number()),
      either: z.union([z.string(), z.number()]),
    })
    const row = {
      zip: '0123',
      n: '5',
      isOld: 'TRUE',
      note: '',
      left: '',
      'address.city': 'Bonn',
      'address.floor': '2',
      list: '[1,2]',
      either: '7',
    }
    const input = {
      zip: '0123',
      n: 5,
      isOld: true,
      note: '',
      address: { city: 'Bonn', floor: 2 },
      list: [1, 2],
      either: '7',
    }
    expect(await made(schema, row)).toEqual(input)
  })

  it('return any text, number and boolean as it was', async () => {
    const schema = z.object({ s: z.string(), n: z.number(), b: z.boolean() })
    const value = fc.record({ s: fc.string(), n: fc.double({ noNaN: true, noDefaultInfinity: true }), b: fc.boolean() })
    await forAllInTime(value, async (input) => {
      const cells = Object.fromEntries(
        Object.entries(input).map(([name, each]) => [name, typeof each === 'string' ? each : JSON.stringify(each)]),
      )
      expect(await made(schema, cells)).toEqual({ ...input, n: input.n === 0 ? 0 : input.n })
    })
  })

  it('that fit no type stay as written, and a number that would change its value stays text', async () => {
    const schema = z.object({ s: z.string(), n: z.number() })
    expect(await made(schema, { s: '7', n: 'abc' })).toEqual({ s: '7', n: 'abc' })
    expect(await made(schema, { s: '7', n: '12345678901234567890' })).toEqual({ s: '7', n: '12345678901234567890' })
    expect(
      await made(z.record(z.string(), z.string()), { ['__proto__']: 'x', 'constructor.prototype': 'y' }).catch(String),
    ).toBeDefined()
    expect(({} as { prototype?: unknown }).prototype).toBeUndefined()
    await expect(
      inputOf(task('t', { input: schema, run: () => 1 }) as unknown as AnyTask, ['a', 'b'], ['1']),
    ).rejects.toMatchObject({ code: 'SLUICE_BAD_ROW' })
  })
})

it('a progress bar is drawn only on terminals, where lines are written above it; without a total it counts', () => {
  const shown = (isTTY: boolean, total?: number) => {
    const stream = Object.assign(new PassThrough(), { isTTY, columns: 80 })
    const bar = barOn(stream as never, total, 'sent')
    bar.set(400)
    bar.count(12)
    bar.above(() => void stream.write('line 3: bad\n'))
    bar.end()
    return String(stream.read() ?? '')
  }
  expect(shown(true, 1_000)).toMatch(/40% \| 12 sent/)
  expect(shown(true, 1_000)).toContain('\r\u001b[Kline 3: bad\n')
  expect(shown(true)).toBe('\r12 sent\r\u001b[Kline 3: bad\n\n')
  expect(shown(false, 1_000)).toBe('line 3: bad\n')
})

it.each([
  ['y\n', true],
  ['yes\n', true],
  ['\n', false],
  ['no\n', false],
  ['', false],
])('a prompt that is answered with %j returns %j', async (answer, means) => {
  const input = new PassThrough()
  input.end(answer)
  expect(await confirm('cancel 3 jobs? [y/N] ', input, new PassThrough())).toBe(means)
})
