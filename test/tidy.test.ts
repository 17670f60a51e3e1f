import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { inSource, isCode, isGenerated, isSql, isStatement, readAll, type File } from './repository.ts'
import { obscure, spokenNames } from './language.ts'
import { moduleOf, strayImports, strayNames, strayReferences, unindexed } from './modules.ts'
import { calls, cycles, imports, sleeps, tooLong, undocumented } from './syntax.ts'

// The law of this repository. Each law lists its violations in a set of files: it is held against the repository and,
// to prove that it can fail, against the `bad` samples beside it, each of which must give one violation.

type Law = { in: (files: File[]) => string[]; bad: Record<string, string>[] }

const linesMax = 399
const functionLinesMax = 69
const banned: Record<string, string> = {
  'Date.now': 'clock.wallMs of core/clock.ts',
  'new Date': 'clock.wallMs of core/clock.ts',
  'performance.now': 'clock.monotonicMs of core/clock.ts',
  'process.hrtime': 'clock.monotonicMs of core/clock.ts',
  'Math.random': 'clock.random of core/clock.ts',
}
const openMarks = new RegExp(['TO' + 'DO', 'FIX' + 'ME', 'X' + 'XX'].map((mark) => `\\b${mark}\\b`).join('|'))
const vagueName =
  /(^|[-_.])(utils?|helpers?|common|managers?|types)([-_.]|$)|(Utils?|Helpers?|Common|Managers?|Types)([-_.]|$)/
/** A private method whose name begins with an adverb, a preposition or a conjunction, which hides what is done. */
const adverbName =
  /^ {2}(?:async )?\*?#(?:again|aside|away|back|but|each|in|next|not|of|once|one|or|out|over|own|then|until|unless|when|where|whose|with|without)(?=[A-Z(<])\w*[(<]/gm
/** SQL that is put together for a schema, or texts of .sql files. */
const byHand =
  /\b(select|from|join|into|update|call)\s+\$\{[^}]*\}\.|^import (?!type)[^']*\bstatements\b[^']*'[./]*generated\/sql\.ts'/im
const wallClock =
  /(?<![.\w])(now|clock_timestamp|statement_timestamp|transaction_timestamp|timeofday)\s*\(|\b(current_timestamp|current_date|current_time|localtimestamp|localtime)\b|'now'/i

const laws: Record<string, Law> = {
  'modules import one way': {
    in: strayImports,
    bad: [{ 'src/limits/a.ts': `export type { B } from '../store/b.ts'` }, { 'src/new/a.ts': `import '../core/b.ts'` }],
  },
  'modules call functions and touch tables one way': {
    in: strayReferences,
    bad: [
      { 'src/limits/a.sql': 'select id from sluice.lane' },
      {
        'src/store/a.sql': 'create or replace function engine.a() as $$ select engine.b() $$',
        'src/claim/b.sql': 'create or replace function engine.b() as $$ select 1 $$',
      },
      {
        'src/store/a.ts': `await sql.call('b', [1])`,
        'src/claim/b.sql': 'create or replace function engine.b() as $$ select 1 $$',
      },
      { 'src/core/a.ts': 'await sql.query(`select 1 from sluice.job`)' },
    ],
  },
  'a README names the folders and files of its module': {
    in: unindexed,
    bad: [
      { 'src/core/a.ts': '' },
      { 'src/core/README.md': 'clocks', 'src/core/clocks/a.ts': '' },
      { 'src/core/README.md': '`a.ts`', 'src/core/a.ts': '', 'src/core/b.ts': '' },
      { 'src/core/README.md': '`a.ts` and `b.sql`', 'src/core/a.ts': '' },
    ],
  },
  'imports have no cycles': {
    in: (files) => cycles(new Map(inSource(files).map((file) => [file.path, imports(file)]))),
    bad: [{ 'src/core/a.ts': `import './b.ts'`, 'src/core/b.ts': `let a: import('./a.ts').A` }],
  },
  'files have under 400 lines, functions under 70': {
    in: (files) =>
      files
        .filter(({ path }) => isCode(path) && !isGenerated(path))
        .flatMap((file) => tooLong(file, linesMax, functionLinesMax)),
    bad: [
      { 'src/core/a.ts': '\n'.repeat(400) },
      { 'src/core/a.ts': `const f = () => {${'\n'.repeat(70)}}` },
      { 'src/db/a.sql': `as $$${'\n'.repeat(70)}$$` },
      { 'src/redis/a.lua': `local function a()${'\n'.repeat(70)}end` },
    ],
  },
  'the embedded engine is loaded when a store needs it': {
    in: (files) =>
      inSource(files)
        .filter(
          ({ path, text }) =>
            path !== 'src/db/engine.ts' && /^import (?!type).*\/(db\/)?(engine|disk)\.ts'$/m.test(text),
        )
        .map(({ path }) => path),
    bad: [{ 'src/db/pglite.ts': `import { Engine } from './engine.ts'` }],
  },
  'every export has a docstring': {
    in: (files) => inSource(files).flatMap(undocumented),
    bad: [
      { 'src/core/a.ts': '// no\nexport const a = 1' },
      { 'src/core/a.ts': '/** far */\nlet b\nexport class A {}' },
    ],
  },
  'SQL begins with its purpose and parameters': {
    in: (files) =>
      files.filter(isSql).flatMap(({ path, text }) => {
        const header = /^(--[^\n]*(\n|$))*/.exec(text)?.[0] ?? ''
        if (header.length < 10) return [`${path} does not begin with a comment that says its purpose`]
        const used = isStatement({ path, text }) ? new Set(text.slice(header.length).match(/\$\d+/g)) : []
        return [...used].filter((name) => !header.includes(name)).map((name) => `${path} does not explain ${name}`)
      }),
    bad: [{ 'src/db/a.sql': 'select 1' }, { 'src/db/a.sql': '-- Reads one row; $1 is its id.\nselect $1, $2' }],
  },
  'SQL lines have at most 120 characters': {
    in: (files) =>
      files
        .filter(isSql)
        .filter(({ text }) => /^.{121}/m.test(text))
        .map(({ path }) => path),
    bad: [{ 'src/db/a.sql': `-- ${'long '.repeat(24)}` }],
  },
  'SQL functions are named by two words or more, like their file': {
    in: (files) =>
      files.filter(isSql).flatMap(({ path, text }) => {
        const [first, ...others] = [...text.matchAll(/^create or replace function engine\.(\w+)/gim)].map(
          ([, name]) => name,
        )
        const short = [first, ...others].filter((name) => name !== undefined && !name.includes('_'))
        const isElsewhere = first !== undefined && !path.endsWith(`/${first}.sql`)
        return [...short.map((name) => `${path}: ${name}`), ...(isElsewhere ? [`${path} defines ${first}`] : [])]
      }),
    bad: [
      { 'src/db/stir.sql': 'create or replace function engine.stir()' },
      { 'src/db/a.sql': 'create or replace function engine.wake_worker()' },
    ],
  },
  // PostgreSQL does not inline such a function, and plans it in each statement that calls it: 0.3 ms.
  'SQL functions with a query in them are PL/pgSQL, unless they return rows': {
    in: (files) =>
      files.filter(isSql).flatMap(({ path, text }) =>
        text
          .split(/(?=^create (?:or replace )?function )/im)
          .filter((one) => /^create[^]*\blanguage sql\b/i.test(one) && !/\breturns (table|setof)\b/i.test(one))
          .filter((one) => /\(\s*select\b/i.test(one))
          .map(() => path),
      ),
    bad: [
      {
        'src/db/has_jobs.sql':
          'create or replace function engine.has_jobs() returns boolean\nlanguage sql as $$ select exists (select 1 from sluice.job) $$',
      },
    ],
  },
  'Lua begins with its purpose': {
    in: (files) =>
      files.filter(({ path, text }) => path.endsWith('.lua') && !/^-- .{10}/.test(text)).map(({ path }) => path),
    bad: [{ 'src/redis/a.lua': 'return 1' }],
  },
  'SQL reads time only by sluice.now()': {
    in: (files) =>
      files
        .filter(isSql)
        .filter(({ text }) => wallClock.test(withoutClock(text)))
        .map(({ path }) => path),
    bad: [{ 'src/db/a.sql': 'select now()' }, { 'src/db/a.sql': 'select sluice.now(), current_timestamp' }],
  },
  'SQL files are used': {
    in: (files) => {
      const source = files.filter(({ path }) => path.startsWith('src/') && isCode(path) && !isGenerated(path))
      const texts = source.map(({ text }) => text).join('\n')
      return files
        .filter(isSql)
        .filter((file) => !isUsed(file, texts))
        .map(({ path }) => `${path} is used by nobody`)
    },
    bad: [
      { 'src/db/a.sql': 'select 1', 'src/db/b.ts': `const a = 'db/a'` },
      { 'src/db/a.sql': 'create or replace function engine.a()', 'src/db/b.ts': `sql.call('ab')` },
      { 'src/db/a.sql': 'create or replace function engine.a()', 'test/db/b.ts': `sql.call('a')` },
    ],
  },
  'TypeScript names SQL by db/store.ts alone': {
    in: (files) =>
      inSource(files)
        .filter(({ path }) => moduleOf(path) !== 'db')
        .filter(({ text }) => byHand.test(text))
        .map(({ path }) => path),
    bad: [
      { 'src/store/a.ts': 'await db.query(`select * from ${engine}.a($1)`)' },
      { 'src/store/a.ts': 'await db.query(`select id from ${this.#schema}.job`)' },
      { 'src/store/a.ts': `import { statements } from '../generated/sql.ts'` },
    ],
  },
  'time, randomness and output have one owner': {
    in: (files) =>
      inSource(files)
        .filter(({ path }) => path !== 'src/core/clock.ts')
        .flatMap(strayCalls),
    bad: [...Object.keys(banned), 'console.log'].map((call) => ({ 'src/core/a.ts': `const a = ${call}()` })),
  },
  'tests wait for conditions, they do not sleep': {
    in: (files) =>
      files
        .filter(({ path }) => /^test\/(?!servers\/).*\.ts$/.test(path))
        .filter(sleeps)
        .map(({ path }) => path),
    bad: [
      { 'test/a.ts': 'await new Promise((resolve) => setTimeout(resolve, 5))' },
      { 'test/a.ts': `import { setTimeout } from 'node:timers/promises'` },
      { 'test/a.ts': 'await systemClock.sleep(5)' },
    ],
  },
  'modules of tests register no hooks when they are loaded, since files of one process load them once': {
    in: (files) =>
      files
        .filter(({ path }) => /^test\/.*(?<!\.test)\.ts$/.test(path) && path !== 'test/property.ts')
        .filter(({ text }) => /^(before|after)(Each|All)\(/m.test(text))
        .map(({ path }) => path),
    bad: [{ 'test/redis/a.ts': 'afterEach(() => {})' }],
  },
  'tests name an SQL function of the engine in one file, and some tables only there': {
    in: strayNames,
    bad: [
      ...['test/claim/a.test.ts', 'test/limits/engine.ts', 'test/engine.ts'].map((path) => ({
        'src/claim/a.sql': 'create or replace function engine.claim_one()',
        [path]: `await db.query('select engine.claim_one()')`,
      })),
      { 'test/claim/locks.ts': '' },
      { 'test/takes/a.test.ts': `await db.query('select from sluice.${'lease'}')` },
    ],
  },
  'names describe what is inside': {
    in: (files) => files.map(({ path }) => path).filter((path) => path.split('/').some((name) => vagueName.test(name))),
    bad: [{ 'src/core/utils.ts': '' }, { 'test/helpers/a.ts': '' }, { 'src/db/lockManager.ts': '' }],
  },
  'private methods begin with a verb, or with what they return': {
    in: (files) =>
      files
        .filter(({ path }) => /^src\/.*\.ts$/.test(path) && !isGenerated(path))
        .flatMap(({ path, text }) => [...text.matchAll(adverbName)].map(([name]) => `${path}: ${name.trim()}`)),
    bad: [
      { 'src/core/a.ts': 'class A {\n  #again(): void {}\n}' },
      { 'src/core/a.ts': 'class A {\n  async #untilDone<T>() {}\n}' },
    ],
  },
  'comments and docs are in plain English': {
    in: (files) =>
      files
        .filter(
          ({ path }) => /^(src|test|docs|scripts|bench|examples|README|CONTRIBUTING)/.test(path) && !isGenerated(path),
        )
        .filter(({ path }) => /\.(ts|mjs|sql|lua|md)$/.test(path))
        .flatMap(obscure),
    bad: [
      { 'src/core/a.ts': '/** Of a window the counts are void. */' },
      { 'src/core/a.ts': `let a // ${'long '.repeat(40)}` },
      { 'src/db/a.sql': '-- Reads rows. Who holds one\n-- goes on.' },
      { 'docs/a.md': 'The store tells the worker.' },
    ],
  },
  'names in the source are no verbs of speech': {
    in: (files) =>
      files.filter(({ path }) => /^src\/.*\.(ts|sql|lua)$/.test(path) && !isGenerated(path)).flatMap(spokenNames),
    bad: [
      { 'src/core/a.ts': 'const askedMs = 1' },
      { 'src/core/a.ts': 'class A { #told = 1 }' },
      { 'src/db/a.sql': "select v_asked, 'told'" },
      { 'src/redis/a.lua': 'local said = 1' },
    ],
  },
  'docs name existing files': {
    in: (files) => {
      const paths = files.map(({ path }) => path)
      const named = /`((?:src\/|test\/)?[\w-]+\/[\w./-]+\.(?:ts|sql|lua|mjs))`/g
      return files
        .filter(({ path }) => /^(docs\/|test\/|src\/.*README|README|CONTRIBUTING)/.test(path) && path.endsWith('.md'))
        .flatMap(({ path, text }) => [...text.matchAll(named)].map(([, name = '']) => [path, name] as const))
        .filter(([, name]) => !paths.some((path) => path === name || path === `src/${name}`))
        .map(([path, name]) => `${path} names ${name}`)
    },
    bad: [{ 'docs/a.md': 'A claim is decided in `claim/decide.sql`.' }],
  },
  'pages link to headings that exist': {
    in: strayLinks,
    bad: [
      { 'docs/a.md': 'See [b](b.md#one-two).', 'docs/b.md': '## One' },
      { 'README.md': 'See [a](docs/a.md).' },
      { 'docs/a.md': '# One\n\nSee [above](#two).' },
    ],
  },
  'no work is marked as left open': {
    in: (files) =>
      files.filter(({ path, text }) => !path.endsWith('.json') && openMarks.test(text)).map(({ path }) => path),
    bad: [{ 'src/core/a.ts': '// TO' + 'DO: later' }],
  },
  'the changelog keeps its shape': {
    in: (files) => files.filter(({ path }) => path === 'CHANGELOG.md').flatMap(({ text }) => changelog(text)),
    bad: [
      { 'CHANGELOG.md': '# Changelog\n\n## [1.0.0] - 2026-01-01\n' },
      { 'CHANGELOG.md': '# Changelog\n## [Unreleased]\n### Odd\n' },
      { 'CHANGELOG.md': '# Changelog\n## [Unreleased]\n### Fixed\n- A job is kept.\n' },
      { 'CHANGELOG.md': '# Changelog\n## [Unreleased]\n### Added\n- A job is no longer lost.\n' },
    ],
  },
  'the lockfile names no registry': {
    in: (files) =>
      files
        .filter(({ path, text }) => path.endsWith('-lock.json') && text.includes('"resolved":'))
        .map(({ path }) => path),
    bad: [{ 'package-lock.json': '{ "resolved": "" }' }],
  },

  'docs/errors.md explains each error code, and no other': {
    in: (files) => {
      const said = codesIn(files, /^docs\/errors\.md$/, /^\| `(SLUICE_[A-Z_]+)` \| \S/gm)
      const read = codesIn(files, /^src\/.*\.ts$/, /(?:\benv\(|process\.env\[)'(SLUICE_[A-Z_]+)'/g)
      const raised = codesIn(files, /^src\/(?!generated).*\.(ts|sql)$/, /\b(SLUICE_[A-Z_]+)/g).filter(
        (code) => !read.includes(code),
      )
      return [...said.filter((code) => !raised.includes(code)), ...raised.filter((code) => !said.includes(code))]
    },
    bad: [{ 'src/a.sql': "refuse('SLUICE_BAD_DAY')" }, { 'docs/errors.md': '| `SLUICE_GOOD_DAY` | Never. |' }],
  },
}

const repository = readAll()

describe.each(Object.entries(laws))('the law that %s', (_name, law) => {
  it('is kept by this repository', () => expect(law.in(repository)).toEqual([]))
  it.each(law.bad)('finds what sample %# does wrong', (bad) => {
    expect(law.in(Object.entries(bad).map(([path, text]) => ({ path, text })))).toHaveLength(1)
  })
})

/** What the pattern's group finds in the files of these paths. */
function codesIn(files: File[], where: RegExp, code: RegExp): string[] {
  const texts = files.filter(({ path }) => where.test(path)).map(({ text }) => text)
  return [...new Set(texts.flatMap((text) => [...text.matchAll(code)].map(([, one]) => one ?? '')))]
}

/** Links between pages that lead to no page, or to no heading of it. */
function strayLinks(files: File[]): string[] {
  const pages = files.filter(({ path }) => path.endsWith('.md'))
  const headings = new Map(pages.map(({ path, text }) => [path, [...text.matchAll(/^#+ (.*)/gm)].map(anchorOf)]))
  return pages.flatMap(({ path, text }) =>
    [...text.matchAll(/\]\((?!\w+:)([^)#\s]*\.md)?(?:#([^)\s]*))?\)/g)].flatMap(([link, to, anchor]) => {
      const known = headings.get(to === undefined ? path : join(dirname(path), to))
      return known !== undefined && (anchor === undefined || known.includes(anchor)) ? [] : [`${path} links to ${link}`]
    }),
  )
}

/** The anchor of a heading, as GitHub makes it. */
function anchorOf([, heading = '']: RegExpMatchArray | RegExpExecArray): string {
  const words = heading.replaceAll(/\]\([^)]*\)/g, '').toLowerCase()
  return words.replaceAll(/[^\p{L}\p{N}_ -]/gu, '').replaceAll(' ', '-')
}

/** SQL without its comments and without the one definition that may read the machine's clock. */
function withoutClock(sql: string): string {
  const code = sql.replaceAll(/--[^\n]*|\/\*[^]*?\*\//g, '')
  return code.replaceAll(/create (or replace )?function sluice\.now\w*\([^]*?('|\$\$);/gi, '')
}

/** Migrations are all applied; TypeScript runs a statement; a function is called, by SQL beyond its own definition. */
function isUsed(file: File, texts: string): boolean {
  if (file.path.includes('/migrations/') || file.path.endsWith('/records.sql')) return true
  if (isStatement(file)) {
    const name = file.path.slice('src/'.length, -'.sql'.length)
    return new RegExp(`(\\.run|\\bstatementIn)\\b[^']*'${name}'`).test(texts)
  }
  const names = [...file.text.matchAll(/create or replace function (?:sluice|engine)\.(\w+)/gi)].map(
    (match) => match[1],
  )
  const callers = texts.replaceAll(/(--|create or replace function)[^\n(]*/gi, '')
  return names.every((name) =>
    new RegExp(`\\b(sluice|engine)\\.${name}\\b|\\b(call|ids|chore)\\b[^']*'${name}'`).test(callers),
  )
}

function strayCalls(file: File): string[] {
  return calls(file).flatMap((call) => {
    if (call.startsWith('console.') && !file.path.startsWith('src/cli/'))
      return [`${file.path}: ${call}: only cli/ prints`]
    return call in banned ? [`${file.path}: ${call}: use ${banned[call]}`] : []
  })
}

/**
 * The shape: an Unreleased section first, then dated versions; in each, known headings over bullet points. What was
 * never released has no fixes: before the first version there are only features.
 */
function changelog(text: string): string[] {
  const lines = text.split('\n').filter((line) => line !== '')
  const sections = lines.filter((line) => line.startsWith('## '))
  const body = lines.slice(lines.findIndex((line) => line.startsWith('## ')))
  const known =
    /^(## \[(Unreleased\]|\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d)$|### (Added|Changed|Deprecated|Removed|Fixed|Security)$|- \S| {2}\S)/
  const isHeaded = lines[0] === '# Changelog' && sections[0] === '## [Unreleased]'
  const fix = sections.length > 1 ? /^$/ : /^### (?!Added$)|\bno longer\b/
  return [
    ...(isHeaded ? [] : ['does not begin with # Changelog and ## [Unreleased]']),
    ...body.filter((line) => !known.test(line) || fix.test(line)),
  ]
}
