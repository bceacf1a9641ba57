package web

import (
	"cmp"
	"strconv"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/endpoint"
)

const weightPath = "/set-weight"

type weightForm struct {
	form
	Namespace, Weight string // as typed
}

func (s *server) newWeightForm(req *request) *weightForm {
	p := &weightForm{Namespace: req.trimmedValue("namespace"), Weight: req.trimmedValue("weight")}
	p.form = req.newForm(form{page: "weight", title: "Weight of a namespace", nav: "Workers", Button: "Set the weight", Back: Root + "/workers"})
	weight, err := strconv.ParseFloat(p.Weight, 64)
	if err != nil {
		weight = 1
	}
	c := p.newCall(endpoint.SetNamespace, "namespace weight", cmp.Or(p.Namespace, "NAMESPACE"))
	c.words = append(c.words, strconv.FormatFloat(weight, 'f', -1, 64))
	c.member("weight", &weight)
	p.Command = c.format()
	return p
}

func (p *weightForm) do(req *request) (*view, error) {

	weight, err := strconv.ParseFloat(p.Weight, 64)
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "invalid weight %q: must be a number from 0.01 to 1000",
			truncate(p.Weight, 40))
	}
	_, err = p.Engine.SetNamespaceWeight(req.Context(), p.Namespace, weight, p.Actor)
	return &view{next: p.Back, note: "The weight of namespace " + p.Namespace + " is " + p.Weight + "."}, err
}
