/** `sluice completion`: scripts for shells, which call `sluice complete` for the words that may follow. */
import { Argument, Command, type Option } from 'commander'
import { output } from './output.ts'

/** Each script passes the words of the line so far, the last one as far as it is typed. */
const scripts: Record<string, string> = {
  bash: `_sluice() {
  local IFS=$'\\n'
  COMPREPLY=($(sluice complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _sluice sluice`,
  zsh: `#compdef sluice
_sluice() {
  local -a found
  found=("\${(@f)$(sluice complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "$found" ]]; then compadd -- $found; else _files; fi
}
compdef _sluice sluice`,
  fish: `complete -c sluice -f -a '(sluice complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'`,
}

/** `sluice completion`. */
export function completionCommand(): Command {
  return new Command('completion')
    .description('print a script that completes commands and flags in a shell')
    .addArgument(new Argument('<shell>').choices(Object.keys(scripts)))
    .action((shell: string) => {
      output({}).line(scripts[shell] ?? '')
    })
}

/** The command that the scripts call; it is not shown. */
export function completeCommand(program: Command): Command {
  return new Command('complete').argument('[words...]').action((words: string[]) => {
    for (const word of completions(program, words)) output({}).line(word)
  })
}

/** Returns what may follow: commands, flags, or the choices of a flag or an argument. The last word is what was begun. */
export function completions(program: Command, words: readonly string[]): string[] {
  if (words[0] === 'help' && words.length > 1) return completions(program, words.slice(1))
  const begun = words.at(-1) ?? ''
  let command = program
  let given = 0
  let open: Option | undefined
  for (const word of words.slice(0, -1)) {
    if (open !== undefined) open = undefined
    else if (word.startsWith('-'))
      open = flagsOf(command).find((one) => isFlag(one, word) && (one.required || one.optional))
    else {
      const inner = command.commands.find((one) => one.name() === word || one.aliases().includes(word))
      if (inner === undefined) given++
      else [command, given] = [inner, 0]
    }
  }
  const choices = open === undefined ? (command.registeredArguments[given]?.argChoices ?? []) : (open.argChoices ?? [])
  // What stands before the last comma: choices that are not offered again.
  const before = begun.slice(0, begun.lastIndexOf(',') + 1)
  const all =
    open !== undefined
      ? choices.filter((word) => !before.split(',').includes(word)).map((word) => `${before}${word}`)
      : begun.startsWith('-')
        ? flagsOf(command).flatMap(({ long, hidden }) => (hidden || !long ? [] : [long]))
        : [
            ...(given === 0 ? command.commands.map((one) => one.name()).filter((name) => name !== 'complete') : []),
            ...choices,
          ]
  return all.filter((word) => word.startsWith(begun))
}

function isFlag({ long, short }: Option, word: string): boolean {
  return long === word || short === word
}

/** The flags of a command and those that all commands have. */
function flagsOf(command: Command): readonly Option[] {
  const own = [...command.options]
  for (let above = command.parent; above !== null; above = above.parent)
    own.push(...above.options.filter(({ long }) => !own.some((one) => one.long === long)))
  return own
}
