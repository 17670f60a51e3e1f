/** Sends tasks to Celery workers, awaits their results, and inspects and controls the workers. */
export { type Answers, type Control, openControl, type RequestOptions } from './remote.ts'
export {
  type DelayOptions,
  openProducer,
  type Producer,
  type ProducerOptions,
  type ResultOptions,
  type SentTask,
} from './producer.ts'
export { CeleryTaskError } from './result.ts'
export { signature, type Signature } from './signature.ts'
