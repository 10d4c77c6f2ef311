package traffic

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/test/linearize/history"
	"svc.dev/svc/test/linearize/model"
)

// maxVersions is how many versions of lists a client remembers.
const maxVersions = 20

// read sends gets and lists of all kinds until the context ends.
func (c *client) read(ctx context.Context) {
	for c.pause(ctx) {
		if c.random.IntN(2) == 0 {
			c.get(ctx, keysOf(c.traffic.currentGeneration())[c.random.IntN(keys)])
		} else {
			c.listOnce(ctx)
		}
	}
}

// get reads an object: the latest, any, or one that is not older than a version.
func (c *client) get(ctx context.Context, key string) {
	r := request{method: http.MethodGet, key: key}
	seen, atLeast := c.traffic.record.highest.Load(), uint64(0)
	kind := c.random.IntN(4)
	switch kind {
	case 0:
		r.query = url.Values{"resourceVersion": {"0"}}
	case 1:
		atLeast = seen
		r.query = url.Values{"resourceVersion": {strconv.FormatUint(seen, 10)}}
	default:
		atLeast = seen
	}
	o := model.Operation{Client: c.id, Request: model.Request{Verb: model.Get, Key: key}, Call: c.traffic.record.now()}
	resp := c.send(ctx, r)
	o.Return, o.Response.Outcome = c.traffic.record.now(), c.outcome(r, resp)
	if o.Response.Outcome == model.Unknown {
		return
	}
	var object history.Object
	if o.Response.Outcome == model.OK {
		object = c.object(resp.body)
		o.Response = responseOf(object)
	}
	c.traffic.record.add(func(rec *record) {
		if r.query == nil {
			rec.operations = append(rec.operations, o)
		}
		if object.Version != 0 {
			rec.run.Gets = append(rec.run.Gets, history.Get{Name: r.query.Encode(), Object: object, AtLeast: atLeast})
		}
	})
}

// page is a list, or a page of one.
type page struct {
	version uint64
	objects []history.Object
	proceed string
}

func (c *client) list(body []byte) page {
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		c.traffic.record.unexpectedf("%v in %q", err, body)
	}
	p := page{proceed: list.Continue}
	if list.ResourceVersion != "" {
		p.version = c.version(list.ResourceVersion)
	}
	for i := range list.Items {
		o := &list.Items[i]
		p.objects = append(p.objects, history.ObjectOf(o, c.version(o.ResourceVersion)))
	}
	return p
}

// listOnce lists objects: the latest, any, not older than a version, or at a version; at
// once or in pages; all, or selected ones.
func (c *client) listOnce(ctx context.Context) {
	seen, generation := c.traffic.record.highest.Load(), c.traffic.currentGeneration()
	l := history.List{}
	query := url.Values{}
	consistent := false
	switch c.random.IntN(6) {
	case 0:
		query.Set("resourceVersion", "0")
	case 1:
		l.AtLeast = seen
		query.Set("resourceVersion", strconv.FormatUint(seen, 10))
		query.Set("resourceVersionMatch", "NotOlderThan")
	case 2:
		if len(c.versions) == 0 {
			return
		}
		l.Exactly = c.versions[c.random.IntN(len(c.versions))]
		query.Set("resourceVersion", strconv.FormatUint(l.Exactly, 10))
		query.Set("resourceVersionMatch", "Exact")
	default:
		l.AtLeast, consistent = seen, true
	}
	if c.random.IntN(3) == 0 {
		query.Set("limit", "3")
	}
	l.Selector = c.selector()
	setSelector(query, l.Selector)
	l.Name = query.Encode()
	call := c.traffic.record.now()
	if !c.pages(ctx, query, &l) {
		return
	}
	end := c.traffic.record.now()
	if c.versions = append(c.versions, l.Version); len(c.versions) > maxVersions {
		c.versions = c.versions[1:]
	}
	c.traffic.record.add(func(r *record) {
		r.run.Lists = append(r.run.Lists, l)
		if consistent && l.Selector == (history.Selector{}) {
			r.operations = append(r.operations, c.getsOf(l, generation, call, end)...)
		}
	})
	if consistent {
		c.traffic.record.see(l.Version)
	}
}

// pages reads all pages of a list, and reports whether it could.
func (c *client) pages(ctx context.Context, query url.Values, l *history.List) bool {
	for first := true; ; first = false {
		r := request{method: http.MethodGet, query: query}
		resp := c.send(ctx, r)
		if c.outcome(r, resp) != model.OK {
			return false
		}
		p := c.list(resp.body)
		switch {
		case first:
			l.Version = p.version
		case p.version != l.Version:
			c.traffic.record.unexpectedf("list %s: a page of version %d after version %d", l.Name, p.version, l.Version)
			return false
		}
		l.Objects = append(l.Objects, p.objects...)
		if p.proceed == "" {
			return true
		}
		query.Set("continue", p.proceed)
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
	}
}

// getsOf returns the gets of the objects of a generation that a list of all objects
// amounts to.
func (c *client) getsOf(l history.List, generation int, call, end int64) []model.Operation {
	listed := map[string]history.Object{}
	for _, o := range l.Objects {
		listed[o.Key] = o
	}
	var operations []model.Operation
	for _, key := range keysOf(generation) {
		resp := model.Response{Outcome: model.NotFound}
		if object, ok := listed[key]; ok {
			resp = responseOf(object)
		}
		operations = append(operations, model.Operation{Client: c.id, Request: model.Request{Verb: model.Get, Key: key}, Response: resp, Call: call, Return: end})
	}
	return operations
}

// selector returns a selector of all objects, of a half of them, or of one.
func (c *client) selector() history.Selector {
	switch c.random.IntN(4) {
	case 0:
		return history.Selector{Label: []string{"even", "odd"}[c.random.IntN(2)]}
	case 1:
		return history.Selector{Key: keysOf(c.traffic.currentGeneration())[c.random.IntN(keys)]}
	}
	return history.Selector{}
}

func setSelector(query url.Values, s history.Selector) {
	if s.Label != "" {
		query.Set("labelSelector", history.HalfLabel+"="+s.Label)
	}
	if s.Key != "" {
		query.Set("fieldSelector", "metadata.name="+s.Key)
	}
}
