# SPDX-License-Identifier: Apache-2.0
#
# Makes the tables of go-md2man's output fit a terminal: the last column is wrapped at 52 characters.
# A line that starts with an apostrophe is text, not a request, and names are not hyphenated.

BEGIN { FS = OFS = "\t" }

/^'/ { $0 = "\\&" $0 }
/^\.TS/ { format = table = 1 }
/^\.TE/ { table = 0 }

# The lines of the format end with a full stop.
format && /^[lrc ]+\.?$/ {
    end = sub(/ *\.$/, "") ? "." : ""
    sub(/l *$/, "lw(52n)")
    $0 = $0 end
    format = end == ""
}

table && NF > 1 && $NF != "T{" { $NF = "T{\n" $NF "\nT}" }

{ print }
/^\.TH/ { print ".nh" }
