package config

import "strings"

// suggest ends a fault about an unknown name with the known one that is most
// like it.
func suggest(name string, known []string) string {
	if near := nearest(name, known, 1+max(1, min(3, len(name)/3))); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// nearest returns the known name with the fewest differences from name, if they
// are less than most.
func nearest(name string, known []string, most int) string {
	if len(name) > 128 {
		return ""
	}
	best := ""
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < most {
			best, most = k, d
		}
	}
	return best
}

// distance counts the letters to insert, remove or replace to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
