# Completion of `inlay` in bash: written by `inlay completion bash` of version @VERSION@.
# It starts no process; names that a later version adds are completed after it is written again.

@TABLES@

# Sets `kind` to the kind of the argument in this position of a command.
_inlay_argument_kind() {
    _inlay_arguments "$1"
    local -a list
    read -ra list <<<"$kinds"
    local index=$2
    ((index < ${#list[@]})) || index=$((${#list[@]} - 1))
    kind=none
    ((index < 0)) || kind=${list[index]}
}

# Appends files and folders to `values`; with endings, only files that end so.
_inlay_files() {
    local file ending
    while IFS= read -r file; do
        if [[ $# -eq 0 || -d $file ]]; then
            values+=("$file")
        else
            for ending in "$@"; do [[ $file != *"$ending" ]] || values+=("$file"); done
        fi
    done < <(compgen -f -- "$current")
    has_files=1
}

# Appends the values of a kind that begin with the current word to `values`.
_inlay_complete_kind() {
    local word list
    case $1 in
        file) _inlay_files ;;
        model) _inlay_files .onnx .inlay ;;
        directory) while IFS= read -r word; do values+=("$word"); done < <(compgen -d -- "$current"); has_files=1 ;;
        tag_or_file) _inlay_complete_kind tag; _inlay_files ;;
        *)
            list=$1
            case $1 in tag | format | name) [[ $current != *:* ]] || list=vendor ;; esac
            _inlay_values "$list"
            for word in $words_of_kind; do [[ $word != "$current"* ]] || values+=("$word"); done
            ;;
    esac
}

_inlay() {
    local kind='' kinds='' words_of_kind='' has_files='' word rest=${COMP_LINE:0:COMP_POINT} index
    local -a words=() values=()
    COMPREPLY=()
    # bash splits words at = and :, which tags and options contain.
    for ((index = 0; index <= COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        if ((index > 0)) && [[ $rest == [![:space:]]* ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        rest=${rest#"${rest%%[![:space:]]*}"}
        rest=${rest#"$word"}
    done

    local count=${#words[@]} expected='' position=0 was_dims=0 prefix='' quote=''
    local current=${words[count - 1]} command=${words[1]}
    if ((count <= 2)); then
        _inlay_values command
        for word in $words_of_kind --help --version; do [[ $word != "$current"* ]] || COMPREPLY+=("$word"); done
        return
    fi
    for ((index = 2; index < count - 1; index++)); do
        word=${words[index]}
        if [[ -n $expected ]]; then
            expected=''
        elif [[ $word == -*=* ]]; then
            :
        elif [[ $word == -?* ]]; then
            _inlay_option_kind "$command" "$word"
            expected=$kind
        elif [[ $word == [0-9]* ]]; then
            ((was_dims)) || position=$((position + 1))
            was_dims=1
        else
            position=$((position + 1))
            was_dims=0
        fi
    done

    local whole=$current
    if [[ -n $expected ]]; then
        kind=$expected
    elif [[ $current == --*=* ]]; then
        _inlay_option_kind "$command" "${current%%=*}"
        prefix=${current%%=*}=
        current=${current#*=}
    elif [[ $current == -* ]]; then
        kind=options
    else
        _inlay_argument_kind "$command" "$position"
    fi
    case $current in [\'\"]*) quote=1 current=${current:1} ;; esac
    case $kind in
        options)
            _inlay_options "$command"
            for word in $words_of_kind; do [[ $word != "$current"* ]] || values+=("$word"); done
            ;;
        after_equals_*)
            if [[ $current == *=* ]]; then
                prefix+=${current%=*}=
                current=${current##*=}
            fi
            _inlay_complete_kind "${kind#after_equals_}"
            ;;
        *) _inlay_complete_kind "$kind" ;;
    esac

    # What precedes the last = or : stays on the line, unless the word is quoted.
    local head='' break
    if [[ -z $quote ]]; then
        for break in = :; do
            [[ $COMP_WORDBREAKS != *"$break"* || $whole != *"$break"* ]] || word=${whole%"$break"*}$break
            if [[ $COMP_WORDBREAKS == *"$break"* && $whole == *"$break"* ]] && ((${#word} > ${#head})); then head=$word; fi
        done
    fi
    for word in "${values[@]}"; do
        word=$prefix$word
        COMPREPLY+=("${word#"$head"}")
    done
    if type compopt >/dev/null 2>&1; then
        [[ -z $has_files ]] || compopt -o filenames
        [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *[:=] ]] || compopt -o nospace
    fi
}

complete -F _inlay inlay
