/** Reads stdin for commands. */
import type { Output } from './output.ts'

/**
 * Returns stdin, to be read. At a terminal it prints that the command waits for input there, and how that ends.
 * @param what is read, for people
 */
export function standardInput<Stream extends { isTTY?: boolean }>(
  { talk }: Pick<Output, 'talk'>,
  what: string,
  stdin: Stream,
): Stream {
  if (stdin.isTTY === true) talk(`reading ${what} from this terminal: end it with Ctrl-D on a line of its own`)
  return stdin
}
