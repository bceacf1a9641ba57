package cases

import (
	"cmp"
	"context"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/fingerprint"
)

// Why explains how a case was grouped. It returns the parts of the fingerprint, and how often each
// masked value occurs in the newest messages. A mask with many different values hides noise. A
// frequent value may be significant, and the case can be split by it.
func (s *Service) Why(ctx context.Context, id tasker.ID) (tasker.CaseGrouping, error) {
	why, messages, err := s.db.CaseMessages(ctx, id)
	if err != nil {
		return tasker.CaseGrouping{}, err
	}
	type place struct {
		label string
		nth   int
	}
	counts := map[place]map[string]int64{}
	var order []place
	rules := map[string]bool{}
	for _, m := range messages {
		cause := fingerprint.Normalize(fingerprint.Failure{Type: m.ErrorType, Message: m.ErrorMessage})
		for _, r := range cause.Rules {
			if !rules[r] {
				rules[r] = true
				why.Rules = append(why.Rules, r)
			}
		}
		for n, mask := range cause.Masked {
			p := place{mask.Label, n}
			if counts[p] == nil {
				counts[p] = map[string]int64{}
				order = append(order, p)
			}
			counts[p][mask.Text]++
		}
	}
	slices.SortStableFunc(order, func(a, b place) int { return cmp.Compare(a.nth, b.nth) })
	for _, p := range order[:min(len(order), tasker.MaxCaseMasks)] {
		m := tasker.CaseVariable{Label: p.label, Different: len(counts[p])}
		for value, n := range counts[p] {
			m.Values = append(m.Values, tasker.ValueCount{Value: value, Entries: n})
		}
		slices.SortFunc(m.Values, func(a, b tasker.ValueCount) int {
			return cmp.Or(cmp.Compare(b.Entries, a.Entries), cmp.Compare(a.Value, b.Value))
		})
		m.Values = m.Values[:min(len(m.Values), tasker.MaxCaseValues)]
		why.Masks = append(why.Masks, m)
	}
	return why, nil
}
