/** Our schedules against vendors' ways of counting, as arithmetic: the expected values of limits.md 0, without any delay. */
import type { LimitOptions } from '../../src/limits/limit.ts'
import type { Rule } from '../../src/limits/rule.ts'
import { charge, emptyWindow, waitOf, type WindowRule } from '../../src/testing/window.ts'
import { greedy, level, sliding } from '../limits/oracle.ts'

/** A cell's scale: N per W. */
export interface Scale {
  units: number
  windowMs: number
}

export const schedules = ['safe rate', 'bucket(N, N/W)', 'exact window', 'spacing', 'fixed, wrong phase'] as const
export type Schedule = (typeof schedules)[number]

/** The vendors of the table, by name; the small bucket holds a tenth. */
export function vendorRules({ units, windowMs }: Scale): Record<string, WindowRule> {
  const rule = { limit: units, windowNs: windowMs * 1e6, burst: units }
  return {
    'fixed window': { ...rule, algorithm: 'fixed window' },
    'sliding log': { ...rule, algorithm: 'sliding log' },
    'sliding counter': { ...rule, algorithm: 'sliding counter' },
    'bucket of N': { ...rule, algorithm: 'bucket' },
    'small bucket': { ...rule, algorithm: 'bucket', burst: units / 10 },
  }
}

/** The rules of a schedule without any margin, as limits.md 0 has them. */
export function plainRules(schedule: Schedule, { units, windowMs }: Scale): Rule[] {
  const windowUs = windowMs * 1_000
  if (schedule === 'safe rate') return [level(units - units / 10 + 1, windowUs, units / 10)]
  if (schedule === 'bucket(N, N/W)') return [level(units, windowUs, units)]
  if (schedule === 'spacing') return [level(units, windowUs, 1)]
  return [sliding(units, windowUs / 60)]
}

/** The options by which a user writes a schedule; its margin J is in the window of the spacing, because a classic bucket has none. */
export function written(schedule: Schedule, { units, windowMs }: Scale, transitMs: number): LimitOptions {
  const transit = `${transitMs}ms` as const
  const grantMs = Math.min(100, windowMs / 10)
  if (schedule === 'safe rate') return { rate: `${units}/${windowMs}ms`, transit }
  if (schedule === 'bucket(N, N/W)') return { rate: `${units}/${windowMs}ms`, burst: units, transit }
  if (schedule === 'spacing') return { rate: `${units}/${windowMs + grantMs + transitMs}ms`, burst: 1, transit }
  return { window: `${units}/${windowMs}ms`, transit }
}

/** When the calls of a schedule go out, in ns from the first, under a demand that never ends. */
export function times(schedule: Schedule, rules: readonly Rule[], calls: number, { units, windowMs }: Scale): number[] {
  if (schedule === 'fixed, wrong phase') {
    // As many at the end of a window as in each of the next ones.
    return Array.from({ length: calls }, (_, i) => {
      const burst = Math.floor(i / units)
      return burst === 0 ? 0 : (windowMs / 100 + (burst - 1) * windowMs) * 1e6
    })
  }
  return greedy(rules, 0, calls).flatMap(([atUs, got]) => Array<number>(got).fill(atUs * 1_000))
}

/** When a log without parts lets bursts of N go: sub-buckets approximate it. */
export function logTimes(calls: number, { units, windowMs }: Scale): number[] {
  return Array.from({ length: calls }, (_, i) => Math.floor(i / units) * windowMs * 1e6)
}

/** How many of these calls a vendor refuses whose windows began `phaseNs` before the first. */
export function refused(rule: WindowRule, atNs: readonly number[], phaseNs: number): number {
  const state = emptyWindow(rule)
  return atNs.reduce((count, ns) => {
    if (waitOf(rule, state, ns + phaseNs) > 0) return count + 1
    charge(rule, state, ns + phaseNs)
    return count
  }, 0)
}

/** The most that it refuses, whatever its windows' phase; only windows have one. */
export function worstRefused(rule: WindowRule, atNs: readonly number[]): number {
  const steps = rule.algorithm.startsWith('fixed') || rule.algorithm === 'sliding counter' ? 120 : 1
  const phases = Array.from({ length: steps }, (_, i) => (i * rule.windowNs) / steps)
  return Math.max(...phases.map((phase) => refused(rule, atNs, phase)))
}

/** The scale of limits.md 0. */
export const minuteScale: Scale = { units: 100, windowMs: 60_000 }
