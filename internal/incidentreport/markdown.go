package incidentreport

import (
	"fmt"
	"strings"
	"time"

	"tasker.example/tasker"
)

// Markdown returns a report as a Markdown document.
func Markdown(r tasker.IncidentReport) string {
	var d document
	d.line("# Report of %s", subject(r.Subject))
	d.line("")
	d.summary(r)
	d.phases(r)
	d.cases(r)
	d.timeline(r)
	d.acts(r)
	d.operations(r)
	d.members("Ended without a proof", r.Counts.Unproved+r.Counts.PermanentlyFailed, r.Unproved)
	d.members("Still open", r.Counts.Open, r.Open)
	d.messages(r)
	d.line("Digest (SHA-256 of the JSON form): `%s`", r.Digest)
	return d.String()
}

type document struct{ strings.Builder }

func (d *document) line(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// table writes a section with a table. It writes nothing if there are no rows.
func (d *document) table(title string, header []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	d.line("## %s\n", title)
	d.line("| %s |", strings.Join(header, " | "))
	d.line("|%s", strings.Repeat("---|", len(header)))
	for _, row := range rows {
		for i := range row {
			row[i] = cell(row[i])
		}
		d.line("| %s |", strings.Join(row, " | "))
	}
	d.line("")
}

// cell escapes text for a table cell.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ", "<", "&lt;", "`", "'", "[", `\[`, "*", `\*`, "_", `\_`).Replace(text)
}

func subject(s tasker.ReportSubject) string {
	text := s.Kind
	if s.Kind == "range" {
		text = "investigations"
	}
	if s.ID != nil {
		text += " " + s.ID.String()
	}
	if s.Namespace != "" {
		text += " in " + cell(s.Namespace)
	}
	if s.From != nil {
		text += " from " + at(*s.From)
	}
	if s.To != nil {
		text += " to " + at(*s.To)
	}
	return text
}

func at(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func atOr(t *time.Time, otherwise string) string {
	if t == nil {
		return otherwise
	}
	return at(*t)
}

func (d *document) summary(r tasker.IncidentReport) {
	n := r.Counts
	d.line("%s of %s: %d proved, %d went on by themselves, %d cancelled, %d written off, %d ended without a proof, %d open.",
		plural(n.Entries, "investigation"), plural(n.Cases, "case"), n.Proved, n.Recovered, n.Cancelled, n.PermanentlyFailed, n.Unproved, n.Open)
	if r.Began != nil {
		d.line("The first task was stuck at %s. As of %s, tasks were stuck for %s task-minutes.",
			at(*r.Began), at(r.AsOf), number(r.StuckTime))
	}
	d.line("")
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func number(f float64) string { return fmt.Sprintf("%.1f", f) }

func seconds(f float64) string {
	return time.Duration(f * float64(time.Second)).Round(time.Second).String()
}

func (d *document) phases(r tasker.IncidentReport) {
	if r.Counts.Entries == 0 {
		return
	}
	var rows [][]string
	for _, p := range []struct {
		name string
		tasker.ReportPhase
	}{
		{"undetected", r.Phases.TimeToDetect}, {"unowned", r.Phases.TimeToOwn}, {"in repair", r.Phases.TimeToRepair},
		{"proving", r.Phases.TimeToVerify},
	} {
		share := 0.0
		if r.StuckTime > 0 {
			share = 100 * p.TaskMinutes / r.StuckTime
		}
		rows = append(rows, []string{
			p.name, number(p.TaskMinutes), fmt.Sprintf("%.0f %%", share), seconds(p.P50Seconds), seconds(p.P95Seconds),
		})
	}
	d.table("For how long", []string{"phase", "task-minutes", "share", "half of the tasks within", "95 % within"}, rows)
}

func (d *document) cases(r tasker.IncidentReport) {
	var rows [][]string
	for _, c := range r.Cases {
		id := "not known yet"
		if c.CaseID != nil {
			id = c.CaseID.String()
		}
		rows = append(rows, []string{
			id, c.Namespace + "/" + c.Place, c.Cause, fmt.Sprint(c.Entries), fmt.Sprint(c.Proved), fmt.Sprint(c.Open),
			number(c.Stuck),
		})
	}
	d.table("Cases", []string{"case", "where", "cause", "investigations", "proved", "open", "task-minutes"}, rows)
}

func (d *document) timeline(r tasker.IncidentReport) {
	var rows [][]string
	for _, e := range r.Timeline {
		id := ""
		if e.CaseID != nil {
			id = e.CaseID.String()
		}
		rows = append(rows, []string{
			at(e.At), strings.ReplaceAll(e.Event, "_", " "), e.Actor, strings.TrimSpace(e.Detail + " " + id),
		})
	}
	d.table("Timeline", []string{"at", "what", "who", "detail"}, rows)
}

func (d *document) acts(r tasker.IncidentReport) {
	var rows [][]string
	for _, a := range r.Actions {
		how := "by hand"
		if a.OperationUUID != nil {
			how = "operation " + a.OperationUUID.String()
		}
		rows = append(rows, []string{
			strings.ReplaceAll(a.Event, "_", " "), a.Actor, how, fmt.Sprint(a.Entries), at(a.First), at(a.Last),
		})
	}
	d.table("Acts", []string{"act", "who", "how", "investigations", "first", "last"}, rows)
}

func (d *document) operations(r tasker.IncidentReport) {
	var rows [][]string
	for _, o := range r.Operations {
		rows = append(rows, []string{
			o.OperationUUID.String(), string(o.Act), o.Actor, o.Reason, string(o.State), fmt.Sprint(o.Items),
			fmt.Sprint(o.Counts[tasker.ItemVerified]), fmt.Sprint(o.Counts[tasker.ItemFailedAgain]),
			fmt.Sprint(o.Counts[tasker.ItemSkipped]), atOr(o.StartedAt, ""), atOr(o.EndedAt, "goes on"),
		})
	}
	d.table("Operations", []string{
		"operation", "act", "who", "reason", "state", "items", "verified", "failed again", "skipped", "started", "settled",
	}, rows)
	rows = nil
	for _, o := range r.Operations {
		for _, w := range o.Waves {
			rows = append(rows, []string{
				o.OperationUUID.String(), fmt.Sprint(w.Wave), fmt.Sprint(w.Items), fmt.Sprint(w.Verified), fmt.Sprint(w.Failed),
				at(w.From), atOr(w.To, "goes on"),
			})
		}
	}
	d.table("Waves", []string{"operation", "wave", "items", "verified", "failed again", "released", "ended"}, rows)
}

func (d *document) members(title string, count int64, list []tasker.ReportMember) {
	var rows [][]string
	for _, m := range list {
		rows = append(rows, []string{
			m.EntryUUID.String(), m.TaskUUID.String(), at(m.OpenedAt), m.Status, m.By, atOr(m.EndedAt, ""),
		})
	}
	if count > int64(len(list)) {
		title += fmt.Sprintf(": the first %d of %d", len(list), count)
	}
	d.table(title, []string{"investigation", "task", "opened", "status", "who", "ended"}, rows)
}

func (d *document) messages(r tasker.IncidentReport) {
	var rows [][]string
	for _, m := range r.Messages {
		rows = append(rows, []string{at(m.At), m.Topic, strings.Join(m.Sinks, ", ")})
	}
	d.table("Messages", []string{"at", "topic", "received by"}, rows)
}
