// 2,000 jobs at 200 a second whose calls are spaced, 8 worker processes; the way to the vendor may vary by 10 ms.
import { drainedAt } from '../limited.mjs'

const numbers = { rate: '200/s', spacing: { burst: 0, transit: '10ms' }, workers: 8 }

export default drainedAt({
  name: 'spaced-8',
  workers: 8,
  peers: ['sluice'],
  full: { jobs: 2_000, ...numbers },
  quick: { jobs: 600, ...numbers },
})
