import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { connectInfo, takeOwnership } from '../../src/db/owner.ts'
import { start } from './fixtures/child.ts'
import type { Child } from './fixtures/child.ts'
import { isLong } from '../long.ts'

let dir: string
const children: Child[] = []

beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'sluice-owner-'))
})

afterEach(async () => {
  delete process.env['SLUICE_TAKE_OVER']
  vi.restoreAllMocks()
  await Promise.all(children.splice(0).map((child) => child.kill()))
  fs.rmSync(dir, { recursive: true, force: true })
})

function child(): Child {
  const made = start('own.ts', dir)
  children.push(made)
  return made
}

async function winner(): Promise<Child> {
  const made = child()
  await made.line((line) => line === 'ready')
  made.process.stdin.write('go\n')
  await made.line((line) => line === 'won')
  return made
}

/** Leaves the directory as after kill -9 of its owner, with these fields of its owner file changed. */
async function deadClaim(change: Record<string, unknown>): Promise<void> {
  await (await winner()).kill()
  const [name] = fs.readdirSync(path.join(dir, 'owner')).filter((each) => each.startsWith('claim-'))
  const file = path.join(dir, 'owner', name!)
  fs.writeFileSync(file, JSON.stringify({ ...JSON.parse(fs.readFileSync(file, 'utf8')), ...change }))
}

test(
  'exactly one of many processes that open at once becomes the owner, again after each kill -9 of the owner',
  { timeout: 300_000 },
  async () => {
    for (let round = 0; round < (isLong ? 4 : 2); round++) {
      const openers = Array.from({ length: isLong ? 12 : 5 }, child)
      await Promise.all(openers.map((each) => each.line((line) => line === 'ready')))
      for (const each of openers) each.process.stdin.write('go\n')
      const said = await Promise.all(openers.map((each) => each.line((line) => line !== 'ready')))
      const winners = openers.filter((_, i) => said[i] === 'won')
      expect(winners).toHaveLength(1)
      const lost = said.filter(
        (line) =>
          line.startsWith(`lost SLUICE_STORE_OWNED`) &&
          line.includes(`process ${winners[0]!.process.pid} on ${os.hostname()}`),
      )
      expect(lost, said.join('\n')).toHaveLength(openers.length - 1)
      await winners[0]!.kill()
    }
  },
)

test('a stopped owner still owns the directory', async () => {
  const stopped = await winner()
  stopped.process.kill('SIGSTOP')
  await expect(takeOwnership(dir)).rejects.toMatchObject({
    code: 'SLUICE_STORE_OWNED',
    message: expect.stringContaining(`process ${stopped.process.pid} `) as string,
  })
  process.env['SLUICE_TAKE_OVER'] = '1'
  await expect(takeOwnership(dir)).rejects.toMatchObject({ code: 'SLUICE_STORE_OWNED' })
  await stopped.kill()
  await (await takeOwnership(dir)).release()
})

test('a stopped owner still owns the directory when so many connections are pending that the kernel accepts no more', async () => {
  const stopped = await winner()
  stopped.process.kill('SIGSTOP')
  const { host, port } = (await connectInfo(dir))!
  const knocking: net.Socket[] = []
  const knock = () =>
    new Promise<string>((resolve) => {
      const socket = net.connect(path.join(host, `.s.PGSQL.${port}`))
      knocking.push(socket)
      socket.once('connect', () => resolve('taken'))
      socket.once('error', (error: NodeJS.ErrnoException) => resolve(String(error.code)))
    })
  let heard = 'taken'
  while (heard === 'taken') heard = await knock()
  expect(heard).toBe('EAGAIN')
  process.env['SLUICE_TAKE_OVER'] = '1'
  await expect(takeOwnership(dir)).rejects.toMatchObject({ message: expect.stringContaining('is in use by') as string })
  for (const socket of knocking) socket.destroy()
})

test('a second opener in the same process is refused until the first releases', async () => {
  const first = await takeOwnership(dir)
  await expect(takeOwnership(dir)).rejects.toMatchObject({ code: 'SLUICE_STORE_OWNED' })
  expect(await connectInfo(dir)).toMatchObject({ host: fs.realpathSync(dir), port: 5432 })
  await first.release()
  expect(await connectInfo(dir)).toBeUndefined()
  const second = await takeOwnership(dir)
  await second.release()
})

test('a dead owner file of another machine is not overridden, unless the user does it', async () => {
  await deadClaim({ host: 'elsewhere', machine: 'elsewhere', boot: 'another' })
  await expect(takeOwnership(dir)).rejects.toMatchObject({
    code: 'SLUICE_STORE_OWNED',
    message: expect.stringContaining('SLUICE_TAKE_OVER=1') as string,
  })
  process.env['SLUICE_TAKE_OVER'] = '1'
  await (await takeOwnership(dir)).release()
})

test('an owner file of this machine from before its reboot counts as dead', async () => {
  await deadClaim({ boot: 'the one before' })
  const owner = await takeOwnership(dir)
  expect(await connectInfo(dir)).toBeDefined()
  await owner.release()
})

test('an owner file whose socket is missing proves nothing', async () => {
  await deadClaim({ socket: 'missing.sock' })
  await expect(takeOwnership(dir)).rejects.toMatchObject({ code: 'SLUICE_STORE_OWNED' })
})

test('an owner file that cannot be read proves nothing', async () => {
  await deadClaim({ socket: '../../elsewhere.sock' })
  await expect(takeOwnership(dir)).rejects.toMatchObject({
    code: 'SLUICE_STORE_OWNED',
    message: expect.stringContaining('an unknown process') as string,
  })
})

test('a directory whose path is too long for a socket has one owner too, and clients find it', async () => {
  const long = path.join(dir, 'd'.repeat(120), 'e'.repeat(120))
  fs.mkdirSync(long, { recursive: true })
  const owner = await takeOwnership(long)
  owner.onClient((socket) => socket.end('hello'))
  await expect(takeOwnership(long)).rejects.toMatchObject({ code: 'SLUICE_STORE_OWNED' })
  const info = await connectInfo(long)
  const heard = await new Promise<string>((resolve, reject) => {
    net
      .connect(path.join(info!.host, `.s.PGSQL.${info!.port}`))
      .on('data', (chunk) => resolve(chunk.toString()))
      .on('error', reject)
  })
  expect(heard).toBe('hello')
  expect(await connectInfo(long)).toEqual(info)
  await owner.release()
})

test('only the user of the owner can enter the folder with its files, and connect to its socket', async () => {
  const owner = await takeOwnership(dir)
  const room = path.join(dir, 'owner')
  const files = ['.', ...fs.readdirSync(room)].map((name) => fs.statSync(path.join(room, name)).mode & 0o077)
  expect(files).toEqual([0, 0, 0])
  await owner.release()
})

test('owners delete the files of their predecessors, but never the one with the highest number', async () => {
  for (let i = 0; i < 110; i++) await (await takeOwnership(dir)).release()
  const left = fs.readdirSync(path.join(dir, 'owner')).sort()
  expect(left.filter((name) => name.endsWith('.sock') || name.endsWith('.draft'))).toEqual([])
  expect(left.length).toBeLessThanOrEqual(101)
  expect(left.at(-1)).toBe('claim-000000000110.json')
})

/** An owner file in the directory that other processes do not see until it is shown. */
function hidden(number: number): { show(): void } {
  const name = path.join(dir, 'owner', `claim-${String(number).padStart(12, '0')}.json`)
  fs.renameSync(name, `${name}.hidden`)
  return { show: () => fs.renameSync(`${name}.hidden`, name) }
}

describe('while an opener looks for the owner', () => {
  test('many owners come and go, and only one owns: a used and removed number creates no second owner', async () => {
    const owner = await takeOwnership(dir)
    const [name] = fs.readdirSync(path.join(dir, 'owner')).filter((each) => each.endsWith('.json'))
    const claim = path.join(dir, 'owner', name!)
    fs.renameSync(claim, path.join(dir, 'later'))
    const link = fs.linkSync
    vi.spyOn(fs, 'linkSync').mockImplementationOnce((...args) => {
      fs.renameSync(path.join(dir, 'later'), claim.replace('001.json', '150.json'))
      link(...args)
    })
    await expect(takeOwnership(dir)).rejects.toMatchObject({
      message: expect.stringContaining('is in use by') as string,
    })
    // Nor is the file that the opener wrote meanwhile mistaken for that of a living owner.
    expect(JSON.parse(fs.readFileSync(claim, 'utf8'))).toMatchObject({ released: true })
    expect(await connectInfo(dir)).toBeDefined()
    await owner.release()
  })

  test('another opener takes the number first, and this opener looks again', async () => {
    const owner = await takeOwnership(dir)
    const { show } = hidden(1)
    const link = fs.linkSync
    vi.spyOn(fs, 'linkSync').mockImplementationOnce((...args) => {
      show()
      link(...args)
    })
    await expect(takeOwnership(dir)).rejects.toMatchObject({
      message: expect.stringContaining('is in use by') as string,
    })
    await owner.release()
  })

  test("another opener takes over and removes the dead owner's socket, and this opener looks again", async () => {
    await (await winner()).kill()
    await (await takeOwnership(dir)).release()
    const { show } = hidden(2)
    const read = fs.readFileSync
    vi.spyOn(fs, 'readFileSync').mockImplementation(((file: string, ...more: []) => {
      const text = read(file, ...more)
      if (String(file).endsWith('1.json')) {
        vi.mocked(fs.readFileSync).mockRestore()
        show()
      }
      return text
    }) as never)
    await (await takeOwnership(dir)).release()
    expect(fs.readdirSync(path.join(dir, 'owner'))).toContain('claim-000000000003.json')
  })
})

test('an owner that cannot record that it ended leaves its socket, by which other processes notice it', async () => {
  const owner = await takeOwnership(dir)
  const room = path.join(dir, 'owner')
  const [socket] = fs.readdirSync(room).filter((each) => each.endsWith('.sock'))
  // As on a full disk.
  fs.mkdirSync(path.join(room, `${socket}.draft`))
  await owner.release()
  expect(await connectInfo(dir)).toBeUndefined()
  await (await takeOwnership(dir)).release()
})

test('an opening that fails after its claim gives the directory up', async () => {
  const known = path.join(dir, '.s.PGSQL.5432')
  fs.mkdirSync(known)
  await expect(takeOwnership(dir)).rejects.toThrow()
  fs.rmdirSync(known)
  await (await takeOwnership(dir)).release()
})
