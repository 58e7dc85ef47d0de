# Completion of `inlay` in fish: written by `inlay completion fish` of version @VERSION@.
# It starts no process; names that a later version adds are completed after it is written again.

@TABLES@

# Prints the values of a kind, each after `prefix`, where `current` is the text behind it.
function __inlay_complete_kind --argument-names kind prefix current
    switch $kind
        case file
            string replace -r '^' -- "$prefix" (__fish_complete_path "$current")
        case model
            for file in (__fish_complete_path "$current")
                string match -rq '(/|\.onnx|\.inlay)(\t|$)' -- $file; and echo -- "$prefix$file"
            end
        case directory
            string replace -r '^' -- "$prefix" (__fish_complete_directories "$current")
        case tag_or_file
            __inlay_complete_kind tag "$prefix" "$current"
            __inlay_complete_kind file "$prefix" "$current"
        case 'after_equals_*'
            set -l inner (string replace after_equals_ '' -- $kind)
            set -l parts (string split -r -m 1 = -- "$current")
            if test (count $parts) -eq 2
                __inlay_complete_kind $inner "$prefix$parts[1]=" $parts[2]
            else
                __inlay_complete_kind $inner "$prefix" "$current"
            end
        case '*'
            if contains -- $kind tag format name; and string match -q '*:*' -- "$current"
                set kind vendor
            end
            for value in (__inlay_values $kind)
                echo -- "$prefix$value"
            end
    end
end

function __inlay_complete
    set -l tokens (commandline -opc)
    set -l current (string replace -r '^["\']' '' -- (commandline -ct))
    if test (count $tokens) -eq 1
        __inlay_command_items
        return
    end
    set -l command $tokens[2]
    set -l expected ''
    set -l position 1
    set -l was_dims 0
    for word in $tokens[3..]
        if test -n "$expected"
            set expected ''
        else if string match -q -- '-*=*' $word
            continue
        else if string match -q -- '-?*' $word
            set expected (__inlay_option_kind $command $word)
        else if string match -qr '^[0-9]' -- $word
            test $was_dims -eq 1; or set position (math $position + 1)
            set was_dims 1
        else
            set position (math $position + 1)
            set was_dims 0
        end
    end
    if test -n "$expected"
        __inlay_complete_kind $expected '' "$current"
    else if string match -q -- '--*=*' "$current"
        set -l parts (string split -m 1 = -- "$current")
        __inlay_complete_kind (__inlay_option_kind $command $parts[1]; or echo none) "$parts[1]=" "$parts[2]"
    else if string match -q -- '-*' "$current"
        __inlay_option_items $command
    else
        set -l kinds (__inlay_arguments $command)
        set -l last (count $kinds)
        test $last -gt 0; or return
        test $position -le $last; or set position $last
        __inlay_complete_kind $kinds[$position] '' "$current"
    end
end

complete -c inlay -f -a '(__inlay_complete)'
