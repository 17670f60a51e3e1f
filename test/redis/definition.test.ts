import { expect, it } from 'vitest'
import { toJson, toJsonOnce, type RedisBucket } from '../../src/redis/definition.ts'
import { bucket } from './calls.ts'

it('the definition of several buckets is sent once, and any difference is', () => {
  const one = bucket('a:1', { rate: '100/min' })
  const others: Partial<RedisBucket>[] = [
    { version: 2 },
    { isOwn: true },
    { isFull: true },
    { keepUs: 9e9 },
    { countedFrom: 1 },
  ]
  const buckets = [
    one,
    ...others.map((more) => ({ ...one, ...more })),
    { ...one, rules: one.rules.map((rule) => ({ ...rule })) },
    one,
  ]
  const sent = toJsonOnce(buckets, 0, new Map())
  expect(sent.slice(0, -2)).toEqual(buckets.slice(0, -2).map((each) => toJson(each, [0])))
  expect(sent.slice(-2)).toEqual([1, 1])
  const day = bucket('b', { quota: '10/day' })
  expect(toJsonOnce([day, day, day], 0, new Map([[1, [1e15]]]))).toEqual([toJson(day, [0]), toJson(day, [0, 1e15]), 1])
})
