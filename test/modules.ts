import { inSource, isSql, type File } from './repository.ts'
import { imports } from './syntax.ts'

/** The modules of src/, lowest first. Each uses what stands below it, as far as `uses` permits. */
const below = [
  'core',
  'report',
  'vendors',
  'db',
  'limits',
  'gates',
  'store',
  'http',
  'tasks',
  'claim',
  'takes',
  'redis',
  'amqp',
  'schedule',
  'events',
]

/** What an application and the command line have in common above those. */
const running = ['operations', 'fleet', 'worker', 'outlet', 'bus', 'celery', 'remote']

/** What each module may import, call and read. `generated` holds the texts of SQL and Lua. */
const uses: Record<string, string[]> = {
  core: [],
  report: ['core'],
  generated: [],
  db: ['core', 'report', 'generated'],
  vendors: ['core'],
  limits: ['core', 'vendors', 'db', 'generated'],
  gates: ['core', 'report', 'db', 'limits', 'generated'],
  store: ['core', 'db', 'limits', 'gates', 'generated'],
  http: ['core', 'vendors', 'limits'],
  tasks: ['core', 'db', 'limits', 'gates', 'store', 'http', 'generated'],
  claim: ['core', 'report', 'db', 'limits', 'gates', 'store', 'tasks', 'generated'],
  takes: ['core', 'vendors', 'db', 'limits', 'store', 'http', 'claim', 'generated'],
  redis: ['core', 'db', 'limits', 'claim', 'generated'],
  amqp: ['core'],
  schedule: ['core', 'db', 'store', 'tasks', 'generated'],
  events: ['core', 'db', 'limits', 'store', 'tasks', 'generated'],
  operations: ['core', 'report', 'db', 'limits', 'gates', 'store', 'http', 'tasks', 'claim', 'takes', 'generated'],
  fleet: ['core', 'report', 'db', 'limits', 'gates', 'store', 'tasks', 'claim', 'takes', 'events', 'generated'],
  worker: [...below, 'fleet', 'generated'],
  outlet: [...below, 'fleet', 'worker', 'generated'],
  bus: [...below, 'fleet', 'worker', 'celery', 'generated'],
  celery: ['core', 'amqp', 'redis', 'generated'],
  remote: [...below, 'worker', 'outlet', 'celery'],
  absorb: [...below, 'operations', 'worker', 'celery', 'generated'],
  direct: [...below, 'worker', 'celery', 'absorb', 'generated'],
  sluice: [...below, ...running, 'absorb', 'direct', 'generated'],
  testing: [...below, 'operations', 'fleet', 'worker', 'outlet', 'bus', 'sluice', 'generated'],
  cli: [...below, ...running, 'sluice', 'testing', 'generated'],
}

/** The module that owns each table: it and those above it read and write it. */
const tables: Record<string, string[]> = {
  limits: [
    'limit_def',
    'limit_source',
    'measured',
    'limit_pause',
    'bucket',
    'ledger',
    'usage',
    'summed',
    'budget',
    'refusal',
    'failure',
    'renewal',
    'epoch',
    'step',
    'shared',
    'parked',
    'taker',
    'holder',
    'lease',
  ],
  gates: ['gate'],
  store: [
    'job',
    'arrival',
    'done',
    'done_late',
    'failed',
    'failed_late',
    'idempotency',
    'task',
    'class',
    'worker',
    'idle',
    'setting',
  ],
  tasks: ['learned'],
  claim: ['claim', 'class_state', 'lane', 'list', 'reservation'],
  schedule: ['schedule', 'firing'],
  events: ['emitted', 'subscription', 'publisher'],
  fleet: ['doubt', 'alarm'],
  absorb: ['celery_call'],
}

/** References against the order, each with its reason. */
const exceptions: Record<string, string> = {
  'db engine.create_partitions': 'the transaction that makes a store also makes its first partitions',
  'db engine.check_epoch': 'the transaction that makes a store also records its identity',
  'limits sluice.worker': 'a step of the clock concerns the workers that live',
  'limits sluice.list': 'jobs that wait for a bucket have turns beside takers, and are why a share is not lent',
  'limits sluice.class': 'the lists of a bucket are found by class',
  'limits sluice.claim': 'a settlement whose grant has left the ledger counts from the time of its claim',
  'store engine.send_and_claim_job': 'a send may claim its own job',
  'store engine.blocked_lane': 'a send notifies nobody of jobs behind others that wait for a limit',
  'store engine.is_lane_blocked': 'the same for one job',
  'events engine.state_of_job': 'a delivery is shown in the state of its job',
}

/** Files of tests that name SQL functions because these are their subject; see `strayNames`. */
const subjects: Record<string, string> = {
  'test/modules.ts': 'lists calls that the order of modules does not permit',
  'test/syntax.ts': 'finds the texts of errors that SQL raises',
  'test/messages.test.ts': 'has a sample of such a text',
  'test/claim/locks.ts': 'reads which function takes which lock',
  'test/claim/locks.test.ts': 'compares the locks of each function with the table of locks',
  'test/claim/division.test.ts': 'compares the division of room with its specification, `share.ts`',
  'test/events/emit.test.ts': 'compares the statement for one event with that for several',
  'test/fleet/chores.test.ts': 'knows the order of all chores',
  'test/fleet/releases.test.ts': 'makes another release, by changes of the SQL',
  'test/gates/hours.test.ts': 'compares the hours of gates with their specification',
  'test/limits/calendar.test.ts': 'compares the periods of calendars with `core/calendar.ts`',
  'test/limits/circuit.test.ts': 'compares circuits with their specification',
  'test/limits/stage.ts': 'compares all that can happen to buckets with `limits/decide.ts`',
}

/** Tables that only kits name, because a verb names what their rows mean. Add a table when the last test that named it has got verbs. */
const hidden = ['doubt', 'holder', 'idle', 'lease', 'taker']

/** The module of a path. */
export function moduleOf(path: string): string {
  const [, name = ''] = path.split('/')
  return /^(sluice|opening|sending|default-sluice|workers|index|config|options|version)\.ts$/.test(name)
    ? 'sluice'
    : name
}

/** Imports of modules that the importer may not use. */
export function strayImports(files: File[]): string[] {
  return inSource(files)
    .flatMap((file) => imports(file).map((to) => [file.path, moduleOf(file.path), to, moduleOf(to)] as const))
    .filter(([, from, , to]) => from !== to && !uses[from]?.includes(to))
    .map(([path, , to]) => `${path} imports ${to}`)
}

/** Functions that SQL and TypeScript call, and tables that SQL touches, in modules that the caller may not use. */
export function strayReferences(files: File[]): string[] {
  const owners = new Map<string, string>(
    Object.entries(tables).flatMap(([module, names]) => names.map((name) => [`sluice.${name}`, module] as const)),
  )
  for (const [name, module] of functionsIn(files)) owners.set(name, module)
  return files
    .filter(({ path }) => /^src\/(?!generated\/|.*\/migrations\/).*\.(ts|sql)$/.test(path))
    .flatMap((file) => {
      const from = moduleOf(file.path)
      return [...referencesOf(file)].flatMap((name) => {
        const to = owners.get(name)
        if (to === undefined || to === from || uses[from]?.includes(to) || `${from} ${name}` in exceptions) return []
        return [`${file.path} uses ${name} of ${to}`]
      })
    })
}

/** The module of each SQL function. */
function functionsIn(files: File[]): Map<string, string> {
  const defined = /^create or replace function ((?:engine|sluice)\.\w+)/gim
  return new Map(
    files
      .filter(isSql)
      .flatMap(({ path, text }) => [...text.matchAll(defined)].map(([, name = '']) => [name, moduleOf(path)] as const)),
  )
}

/**
 * Tests that name a function of the engine (other than by its file), or a table that is hidden from them. Those of a module are named
 * in `test/<module>/engine.ts` (or `engine-….ts`) alone, which has verbs for what they do: so another name for one changes one
 * file of tests.
 */
export function strayNames(files: File[]): string[] {
  const owners = functionsIn(files)
  return files
    .filter(({ path }) => /^test\/.*\.(ts|mjs|py)$/.test(path))
    .flatMap(({ path, text }) => {
      const names = new Set(text.match(/\b[a-z0-9]+_\w+\b(?!\.sql)/g)?.filter((name) => owners.has(`engine.${name}`)))
      if (path in subjects) return names.size > 0 ? [] : [`${path} names no function`]
      const isKit = /\/engine(-\w+)?\.ts$/.test(path)
      const stray = [...names].filter((name) => !isKit || owners.get(`engine.${name}`) !== moduleOf(path))
      const read = isKit ? [] : hidden.filter((table) => new RegExp(`\\bsluice\\.${table}\\b`).test(text))
      return [
        ...stray.map((name) => `${path} names ${name} of ${owners.get(`engine.${name}`)}`),
        ...read.map((table) => `${path} names the table ${table}`),
      ]
    })
}

function referencesOf({ path, text }: File): Set<string> {
  if (path.endsWith('.sql')) {
    const code = text.replaceAll(/--[^\n]*/g, '')
    const own = /create or replace function ([\w.]+)/i.exec(code)?.[1]
    return new Set(
      [...code.matchAll(/\b(?:engine|sluice)\.[a-z_]+/g)].map(([name]) => name).filter((name) => name !== own),
    )
  }
  const called = [...text.matchAll(/\b(?:call|ids|chore)\b(?:<[^(]*>)?\(\s*'(\w+)'/g)].map(
    ([, name]) => `engine.${name}`,
  )
  const written = [...text.matchAll(/`[^`]*`/g)].filter(([sql]) => /\b(select|from|update|perform|into)\b/.test(sql))
  return new Set([...called, ...written.flatMap(([sql]) => sql.match(/\b(?:engine|sluice)\.[a-z_]+/g) ?? [])])
}

/** Modules without a README, folders and files that their module's README does not name, and files that it names and that do not exist. */
export function unindexed(files: File[]): string[] {
  const code = files.filter(
    ({ path }) => /^src\/[^/]+\/.*\.(ts|sql|lua)$/.test(path) && !path.startsWith('src/generated/'),
  )
  const folders = new Set(code.map(({ path }) => path.split('/').slice(1, -1).slice(0, 2).join('/')))
  return [...folders].flatMap((folder) => {
    const [module = '', sub] = folder.split('/')
    const index = files.find(({ path }) => path === `src/${module}/README.md`)?.text
    if (index === undefined) return sub === undefined ? [`src/${module} has no README.md`] : []
    if (sub !== undefined) return index.includes(`\`${sub}/\``) ? [] : [`src/${module}/README.md does not name ${sub}/`]
    return misnamed(module, index, code)
  })
}

/** Files at the top of a module that its README leaves out (commands of the command line have their own names), and names of none. */
function misnamed(module: string, index: string, code: File[]): string[] {
  const paths = code.map(({ path }) => path).filter((path) => path.startsWith(`src/${module}/`))
  const named = [...index.matchAll(/`([\w-]+\.(?:ts|sql|lua))`/g)].map(([, name = '']) => name)
  const own = paths.map((path) => path.split('/').slice(2)).filter(({ length }) => module !== 'cli' && length === 1)
  return [
    ...own.flatMap(([name = '']) =>
      !name.endsWith('.ts') || named.includes(name) ? [] : [`${module}: ${name} is not named`],
    ),
    ...named.flatMap((name) =>
      paths.some((path) => path.endsWith(`/${name}`)) ? [] : [`${module}: there is no ${name}`],
    ),
  ]
}
