/** The suite for outlets, on the one in this process, and on one elsewhere that reports late, twice, in any order, or never. */
import { describe } from 'vitest'
import { outletSuite } from './outlets.ts'
import { Remote } from './remote.ts'

describe('the outlet in this process', () => {
  outletSuite(() => ({}))
})

describe('an outlet elsewhere', () => {
  outletSuite((places, began) => {
    let remote: Remote | undefined
    return {
      outlet: (reports) => (remote = new Remote(places, ['few'], began, reports)),
      close: async () => remote?.close(),
    }
  })
})
