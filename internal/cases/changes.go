package cases

import (
	"cmp"
	"context"
	"math"
	"slices"

	"tasker.example/tasker"
)

// A difference is reported only if it meets all these conditions.
const (
	minSamples     = 30    // minimum number of failures, and of successes
	minFailures    = 20    // minimum number of failures with the value
	leastShare     = 0.2   // minimum difference between the two shares
	minLift        = 2     // minimum ratio between the two shares
	maxPValue      = 0.001 // divided by the number of compared values
	maxDifferences = 5
)

// Changes compares the failures of a case with successes of the same step. It also describes who is
// affected and until when. It returns NotFound if the case does not exist.
func (s *Service) Changes(ctx context.Context, id tasker.ID) (tasker.CaseComparison, error) {
	c, err := s.db.CompareCase(ctx, id)
	if err != nil {
		return tasker.CaseComparison{}, err
	}
	failed, succeeded := map[fact]int{}, map[fact]int{}
	for _, f := range c.Failed {
		countFact(failed, f.WorkerName, f.WorkerVersion, f.TaskVersion)
	}
	for _, s := range c.Succeeded {
		countFact(succeeded, s.WorkerName, s.WorkerVersion, s.TaskVersion)
	}
	for _, v := range c.Values {
		failed[fact{v.Key, v.Value}], succeeded[fact{v.Key, v.Value}] = v.Failures, v.Successes
	}
	c.Differences = append(c.Differences, findDifferences(failed, succeeded, len(c.Failed), len(c.Succeeded))...)
	return c.CaseComparison, nil
}

type fact struct{ name, value string }

func countFact(counts map[fact]int, workerName, workerVersion, taskVersion string) {
	for _, f := range []fact{{"worker_name", workerName}, {"worker_version", workerVersion}, {"task_version", taskVersion}} {
		if f.value != "" {
			counts[f]++
		}
	}
}

// findDifferences returns the values that are much more frequent among failures than among
// successes, most significant first. The arguments failures and successes are the sample sizes.
func findDifferences(failed, succeeded map[fact]int, failures, successes int) (list []tasker.CaseDifference) {
	if failures < minSamples || successes < minSamples {
		return nil
	}
	for f, k := range failed {
		g := succeeded[f]
		p, q := float64(k+1)/float64(failures+2), float64(g+1)/float64(successes+2)
		if k < minFailures || p-q < leastShare || p/q < minLift || computePValue(k, failures, g, successes) > maxPValue/float64(len(failed)) {
			continue
		}
		list = append(list, tasker.CaseDifference{Fact: f.name, Value: f.value, Failures: k, Successes: g, Lift: p / q})
	}
	slices.SortFunc(list, func(a, b tasker.CaseDifference) int {
		weight := func(d tasker.CaseDifference) float64 { return float64(d.Failures) * math.Log2(d.Lift) }
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(a.Fact, b.Fact), cmp.Compare(a.Value, b.Value))
	})
	return list[:min(len(list), maxDifferences)]
}

// computePValue returns the probability that at least k of n failures have a value by chance, given
// that k+g of all n+m attempts have it. This is Fisher's exact test, one-sided.
func computePValue(k, n, g, m int) float64 {
	choose := func(n, k int) float64 {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))
		return a - b - c
	}
	have, sum := k+g, 0.0
	for i := k; i <= min(n, have); i++ {
		if have-i <= m {
			sum += math.Exp(choose(n, i) + choose(m, have-i) - choose(n+m, have))
		}
	}
	return min(sum, 1)
}
