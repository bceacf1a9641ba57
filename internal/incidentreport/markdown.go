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
	d.writeLine("# Report of %s", describeSubject(r.Subject))
	d.writeLine("")
	d.writeSummary(r)
	d.writePhases(r)
	d.writeCases(r)
	d.writeTimeline(r)
	d.writeActions(r)
	d.writeOperations(r)
	d.writeMembers("Ended without a proof", r.Counts.Unproved+r.Counts.PermanentlyFailed, r.Unproved)
	d.writeMembers("Still open", r.Counts.Open, r.Open)
	d.writeMessages(r)
	d.writeLine("Digest (SHA-256 of the JSON form): `%s`", r.Digest)
	return d.String()
}

type document struct{ strings.Builder }

func (d *document) writeLine(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// writeTable writes a section with a table. It writes nothing if there are no rows.
func (d *document) writeTable(title string, header []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	d.writeLine("## %s\n", title)
	d.writeLine("| %s |", strings.Join(header, " | "))
	d.writeLine("|%s", strings.Repeat("---|", len(header)))
	for _, row := range rows {
		for i := range row {
			row[i] = escapeCell(row[i])
		}
		d.writeLine("| %s |", strings.Join(row, " | "))
	}
	d.writeLine("")
}

// escapeCell escapes text for a table cell.
func escapeCell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ", "<", "&lt;", "`", "'", "[", `\[`, "*", `\*`, "_", `\_`).Replace(text)
}

func describeSubject(s tasker.ReportSubject) string {
	text := s.Kind
	if s.Kind == "range" {
		text = "investigations"
	}
	if s.ID != nil {
		text += " " + s.ID.String()
	}
	if s.Namespace != "" {
		text += " in " + escapeCell(s.Namespace)
	}
	if s.From != nil {
		text += " from " + formatTime(*s.From)
	}
	if s.To != nil {
		text += " to " + formatTime(*s.To)
	}
	return text
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func formatTimeOr(t *time.Time, otherwise string) string {
	if t == nil {
		return otherwise
	}
	return formatTime(*t)
}

func (d *document) writeSummary(r tasker.IncidentReport) {
	n := r.Counts
	d.writeLine("%s of %s: %d proved, %d went on by themselves, %d cancelled, %d written off, %d ended without a proof, %d open.",
		formatCount(n.Entries, "investigation"), formatCount(n.Cases, "case"), n.Proved, n.Recovered, n.Cancelled, n.PermanentlyFailed, n.Unproved, n.Open)
	if r.Began != nil {
		d.writeLine("The first task was stuck at %s. As of %s, tasks were stuck for %s task-minutes.",
			formatTime(*r.Began), formatTime(r.AsOf), formatNumber(r.StuckTime))
	}
	d.writeLine("")
}

func formatCount(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func formatNumber(f float64) string { return fmt.Sprintf("%.1f", f) }

func formatSeconds(f float64) string {
	return time.Duration(f * float64(time.Second)).Round(time.Second).String()
}

func (d *document) writePhases(r tasker.IncidentReport) {
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
			p.name, formatNumber(p.TaskMinutes), fmt.Sprintf("%.0f %%", share), formatSeconds(p.P50Seconds),
			formatSeconds(p.P95Seconds),
		})
	}
	d.writeTable("For how long", []string{"phase", "task-minutes", "share", "half of the tasks within", "95 % within"},
		rows)
}

func (d *document) writeCases(r tasker.IncidentReport) {
	var rows [][]string
	for _, c := range r.Cases {
		id := "not known yet"
		if c.CaseID != nil {
			id = c.CaseID.String()
		}
		rows = append(rows, []string{
			id, c.Namespace + "/" + c.Place, c.Cause, fmt.Sprint(c.Entries), fmt.Sprint(c.Proved), fmt.Sprint(c.Open),
			formatNumber(c.Stuck),
		})
	}
	d.writeTable("Cases", []string{"case", "where", "cause", "investigations", "proved", "open", "task-minutes"}, rows)
}

func (d *document) writeTimeline(r tasker.IncidentReport) {
	var rows [][]string
	for _, e := range r.Timeline {
		id := ""
		if e.CaseID != nil {
			id = e.CaseID.String()
		}
		rows = append(rows, []string{
			formatTime(e.At), strings.ReplaceAll(e.Event, "_", " "), e.Actor, strings.TrimSpace(e.Detail + " " + id),
		})
	}
	d.writeTable("Timeline", []string{"at", "what", "who", "detail"}, rows)
}

func (d *document) writeActions(r tasker.IncidentReport) {
	var rows [][]string
	for _, a := range r.Actions {
		how := "by hand"
		if a.OperationUUID != nil {
			how = "operation " + a.OperationUUID.String()
		}
		rows = append(rows, []string{
			strings.ReplaceAll(a.Event, "_", " "), a.Actor, how, fmt.Sprint(a.Entries), formatTime(a.First), formatTime(a.Last),
		})
	}
	d.writeTable("Acts", []string{"act", "who", "how", "investigations", "first", "last"}, rows)
}

func (d *document) writeOperations(r tasker.IncidentReport) {
	var rows [][]string
	for _, o := range r.Operations {
		rows = append(rows, []string{
			o.OperationUUID.String(), string(o.Act), o.Actor, o.Reason, string(o.State), fmt.Sprint(o.Items),
			fmt.Sprint(o.Counts[tasker.ItemVerified]), fmt.Sprint(o.Counts[tasker.ItemFailedAgain]),
			fmt.Sprint(o.Counts[tasker.ItemSkipped]), formatTimeOr(o.StartedAt, ""), formatTimeOr(o.EndedAt, "goes on"),
		})
	}
	d.writeTable("Operations", []string{
		"operation", "act", "who", "reason", "state", "items", "verified", "failed again", "skipped", "started", "settled",
	}, rows)
	rows = nil
	for _, o := range r.Operations {
		for _, w := range o.Waves {
			rows = append(rows, []string{
				o.OperationUUID.String(), fmt.Sprint(w.Wave), fmt.Sprint(w.Items), fmt.Sprint(w.Verified), fmt.Sprint(w.Failed),
				formatTime(w.From), formatTimeOr(w.To, "goes on"),
			})
		}
	}
	d.writeTable("Waves", []string{"operation", "wave", "items", "verified", "failed again", "released", "ended"}, rows)
}

func (d *document) writeMembers(title string, count int64, list []tasker.ReportMember) {
	var rows [][]string
	for _, m := range list {
		rows = append(rows, []string{
			m.EntryUUID.String(), m.TaskUUID.String(), formatTime(m.OpenedAt), m.Status, m.By, formatTimeOr(m.EndedAt, ""),
		})
	}
	if count > int64(len(list)) {
		title += fmt.Sprintf(": the first %d of %d", len(list), count)
	}
	d.writeTable(title, []string{"investigation", "task", "opened", "status", "who", "ended"}, rows)
}

func (d *document) writeMessages(r tasker.IncidentReport) {
	var rows [][]string
	for _, m := range r.Messages {
		rows = append(rows, []string{formatTime(m.At), m.Topic, strings.Join(m.Sinks, ", ")})
	}
	d.writeTable("Messages", []string{"at", "topic", "received by"}, rows)
}
