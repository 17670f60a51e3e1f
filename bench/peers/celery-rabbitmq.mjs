// Celery with RabbitMQ as its broker.
import { celeryOn } from '../celery.mjs'

export default celeryOn({ name: 'celery-rabbitmq', server: 'rabbitmq' })
