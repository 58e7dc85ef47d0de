#compdef inlay
# Completion of `inlay` in zsh: written by `inlay completion zsh` of version @VERSION@.
# It starts no process; names that a later version adds are completed after it is written again.

@TABLES@

# Adds the values of a kind.
_inlay_complete_kind() {
    local words_of_kind list=$1
    case $1 in
        file) _files ;;
        model) _files -g '*.(onnx|inlay)(-.)' ;;
        directory) _files -/ ;;
        tag_or_file) _inlay_complete_kind tag; _files ;;
        after_equals_*)
            compset -P '*='
            _inlay_complete_kind ${1#after_equals_}
            ;;
        *)
            [[ $1 == (tag|format|name) && $PREFIX == *:* ]] && list=vendor
            _inlay_values $list
            local -a values=(${=words_of_kind})
            compadd -- ${values:#*:}
            compadd -S '' -- ${(M)values:#*:}
            [[ $list != vendor ]] || compadd -- $values
            ;;
    esac
}

_inlay() {
    local kind kinds words_of_kind word expected= index
    local -i position=0 was_dims=0
    local -a items
    if ((CURRENT == 2)); then
        _inlay_command_items
        _describe -t commands command items
        return
    fi
    local command=$words[2] current=$PREFIX
    for ((index = 3; index < CURRENT; index++)); do
        word=$words[index]
        if [[ -n $expected ]]; then
            expected=
        elif [[ $word == -*=* ]]; then
            :
        elif [[ $word == -?* ]]; then
            _inlay_option_kind $command $word
            expected=$kind
        elif [[ $word == [0-9]* ]]; then
            ((was_dims)) || ((position += 1))
            was_dims=1
        else
            ((position += 1))
            was_dims=0
        fi
    done
    if [[ -n $expected ]]; then
        _inlay_complete_kind $expected
    elif [[ $current == --*=* ]]; then
        _inlay_option_kind $command ${current%%=*}
        compset -P 1 '*='
        _inlay_complete_kind ${kind:-none}
    elif [[ $current == -* ]]; then
        _inlay_option_items $command
        _describe -o -t options option items
    else
        _inlay_arguments $command
        local -a list=(${=kinds})
        ((${#list})) || return 1
        ((position < ${#list})) || position=$((${#list} - 1))
        _inlay_complete_kind $list[position+1]
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _inlay "$@"
else
    compdef _inlay inlay
fi
