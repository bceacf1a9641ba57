// Package suggest finds the closest known word for a misspelled one.
package suggest

import (
	"strings"
	"time"
)

// maxWord limits the length of words, because the comparison takes quadratic time.
const maxWord = 128

// Ending returns the end of an error about an unknown word: a question with the nearest known
// word, or "" if none is near.
func Ending(word string, known []string) string {
	if near := Nearest(word, known, 1+max(1, min(3, len(word)/3))); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// EscapedPlus returns the end of an error about a time in a query if its + was decoded to a blank,
// otherwise "".
func EscapedPlus(text string) string {
	meant := strings.Replace(text, " ", "+", 1)
	if _, err := time.Parse(time.RFC3339, meant); err != nil || meant == text {
		return ""
	}
	return "; a + in a query is written %2B: " + strings.Replace(meant, "+", "%2B", 1)
}

// Nearest returns the known word that differs least from word, or "" if all of them have at least
// most differences.
func Nearest(word string, known []string, most int) string {
	if len(word) > maxWord {
		return ""
	}
	plain := strings.NewReplacer("-", "_")
	word = plain.Replace(strings.ToLower(word))
	best := ""
	for _, k := range known {
		if d := editDistance(word, plain.Replace(strings.ToLower(k)), most); d < most {
			best, most = k, d
		}
	}
	return best
}

// editDistance returns the number of letters to insert, remove, replace or swap to turn a into b.
// It may return most for any larger number.
func editDistance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			replaced := row[j]
			if a[i] != b[j] {
				replaced++
			}
			next[j+1] = min(replaced, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
