"""`trilogue completion SHELL`: a shell's script that completes verbs, options and names."""

from __future__ import annotations

from typing import Annotated

import typer

from trilogue.cli.options import USAGE_ERROR, exit_with_error

BASH = """\
# trilogue completion bash > ~/.local/share/bash-completion/completions/trilogue
_trilogue() {
    local word
    COMPREPLY=()
    while IFS=$'\\t' read -r word _; do
        if [[ $word == ":files" ]]; then
            COMPREPLY+=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
        elif [[ -n $word ]]; then
            COMPREPLY+=("$word")
        fi
    done < <(trilogue complete --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
}
complete -F _trilogue trilogue
"""
ZSH = """\
#compdef trilogue
# trilogue completion zsh > a file _trilogue in a folder of $fpath; or: source <(... zsh)
_trilogue() {
    local line
    local -a found
    for line in "${(@f)$(trilogue complete --words "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == ":files" ]]; then
            _files
        elif [[ -n $line ]]; then
            found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
        fi
    done
    (( $#found )) && _describe trilogue found
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _trilogue "$@"
else
    compdef _trilogue trilogue
fi
"""
FISH = """\
# trilogue completion fish > ~/.config/fish/completions/trilogue.fish
function __trilogue_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in (trilogue complete --words $words[2..-1] 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c trilogue -f -a "(__trilogue_complete)"
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.", show_default=False)],
) -> None:
    """Print a shell's script that completes verbs, options, topics and groups."""
    if shell not in SCRIPTS:
        exit_with_error(f"no completion for {shell}: {', '.join(SCRIPTS)}", USAGE_ERROR)
    typer.echo(SCRIPTS[shell], nl=False)
