// Package figures summarizes repeated measurements (median, spread, ratio).
package figures

import (
	"slices"
	"time"
)

// Median returns the median of the values, which must not be empty. For an even number of values it
// is the mean of the two in the middle.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Quantile returns the quantile q of the durations in milliseconds. It sorts the durations, which
// must not be empty.
func Quantile(d []time.Duration, q float64) float64 {
	slices.Sort(d)
	return float64(d[int(q*float64(len(d)-1))].Microseconds()) / 1000
}
