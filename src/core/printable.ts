/** Text for a terminal and its shell, which show it and do not obey it. */

/** Control characters except tab and line break, and characters that change the direction of what follows. */
// oxlint-disable-next-line no-control-regex -- these are what it looks for
const obeyed = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u202A-\u202E\u2066-\u2069]/g
/** The styles in which the command line paints. */
// oxlint-disable-next-line no-control-regex -- the character that begins them
const style = /(\u001B\[(?:1|2|22|31|32|33|39)m)/

/**
 * Returns a text in which every character that a terminal would obey is written as its code (`\u001b`): errors, keys and tags
 * come from vendors and customers.
 */
export function printable(text: string): string {
  return text.replaceAll(obeyed, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/** As `printable`, for a text that has been painted. */
export function printablePainted(text: string): string {
  return text
    .split(style)
    .map((part, i) => (i % 2 === 1 ? part : printable(part)))
    .join('')
}

/** Quotes a word for a shell, if it needs that. */
export function quoted(text: string): string {
  return /^[\w.:@/-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`
}
