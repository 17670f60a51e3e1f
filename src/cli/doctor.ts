/** `sluice doctor`: checks a store, and prints a line for each check. */
import { Command } from 'commander'
import { SluiceError, textOfError } from '../core/errors.ts'
import { joinLines } from './failure.ts'
import { type Check, checks, connection, deepChecks } from './checks.ts'
import { fail, type Finding } from './finding.ts'
import type { Output } from './output.ts'
import { nameOf, settingsOf, withStore } from './settings.ts'

/** `sluice doctor`. */
export function doctorCommand(): Command {
  return new Command('doctor')
    .description('check the store, its schema, its clock and its workers; exit code 1 when a check fails')
    .option('--deep', 'also read all waiting jobs, and name those that no worker would ever find')
    .action(doctor)
}

const colours = { ok: 'green', warn: 'yellow', fail: 'red' } as const

async function doctor({ deep }: { deep?: true }, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out, schema, redis, amqp } = settings
  const worst = await withStore(settings, { creates: false }, async (store) => {
    // Without a connection no other check can run, and the exit code is 3.
    report(out, 'connection', await connection(store, nameOf(settings)))
    const found: Finding[] = []
    for (const [name, check] of Object.entries({ ...checks, ...(deep && deepChecks) })) {
      const finding = await judge(check, { store, schema, redis, amqp })
      if (finding === undefined) continue
      report(out, name, finding)
      found.push(finding)
    }
    return found
  })
  if (worst.some((finding) => finding.status === 'fail')) process.exitCode = 1
  out.hint(
    worst.every((finding) => finding.status === 'ok')
      ? '`sluice status`'
      : 'see the lines above; `sluice status` shows jobs and workers',
  )
}

async function judge(check: Check, at: Parameters<Check>[0]): Promise<Finding | undefined> {
  try {
    return await check(at)
  } catch (error) {
    if (SluiceError.is(error) && error.code === 'SLUICE_STORE_UNREACHABLE') throw error
    return fail(joinLines(textOfError(error)))
  }
}

function report(out: Output, check: string, { status, text }: Finding): void {
  if (out.json) out.object({ check, status, text })
  else out.line(`${out.paint(colours[status], status.padEnd(4))}  ${check.padEnd(12)}${text}`)
}
