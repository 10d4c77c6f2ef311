package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/test/linearize/history"
	"svc.dev/svc/test/linearize/model"
)

const (
	plainJSON       = "application/json"
	jsonPatch       = string(types.JSONPatchType)
	generationLabel = "generation"
)

// write sends writes of all kinds until the context ends.
func (c *client) write(ctx context.Context) {
	for c.pause(ctx) {
		g := c.traffic.currentGeneration()
		if c.random.IntN(100) == 0 {
			c.deleteCollection(ctx, g)
			continue
		}
		key := keysOf(g)[c.random.IntN(keys)]
		kinds := []func(context.Context, string, string){c.create, c.create, c.update, c.update, c.patch, c.patch, c.patchJSON, c.patchJSON, c.apply, c.delete}
		kinds[c.random.IntN(len(kinds))](ctx, key, strconv.Itoa(g))
	}
}

// content returns an object with a new value, as a request has it.
func (c *client) content(key, generation string) *metav1.PartialObjectMetadata {
	c.written++
	half := []string{"even", "odd"}[c.written%2]
	return &metav1.PartialObjectMetadata{
		TypeMeta: c.traffic.Resource.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name:        key,
			Labels:      map[string]string{history.HalfLabel: half, generationLabel: generation},
			Annotations: map[string]string{history.ValueAnnotation: fmt.Sprintf("%d-%d", c.id, c.written)},
		},
	}
}

func (c *client) create(ctx context.Context, key, generation string) {
	c.writeObject(ctx, model.Request{Verb: model.Create}, request{method: http.MethodPost}, c.content(key, generation))
}

func (c *client) update(ctx context.Context, key, generation string) {
	content, spec := c.content(key, generation), model.Request{Verb: model.Change}
	known := c.known[key]
	switch conditional := !c.traffic.Resource.Unconditional || c.random.IntN(3) > 0; {
	case conditional && known.Version != 0:
		spec.IfVersion, content.ResourceVersion = known.Version, strconv.FormatUint(known.Version, 10)
	case !c.traffic.Resource.Unconditional:
		return // it has not received a version yet
	}
	c.writeObject(ctx, spec, request{method: http.MethodPut, key: key}, content)
}

// patch sends a merge patch of either kind.
func (c *client) patch(ctx context.Context, key, generation string) {
	content, spec := c.content(key, generation), model.Request{Verb: model.Change}
	if known := c.known[key]; known.Version != 0 && c.random.IntN(3) == 0 {
		spec.IfVersion, content.ResourceVersion = known.Version, strconv.FormatUint(known.Version, 10)
	}
	kinds := c.traffic.Resource.MergePatches
	c.writeObject(ctx, spec, request{method: http.MethodPatch, key: key, contentType: string(kinds[c.random.IntN(len(kinds))])}, content)
}

// patchJSON sends a JSON patch, which may test the value.
func (c *client) patchJSON(ctx context.Context, key, generation string) {
	content, spec := c.content(key, generation), model.Request{Verb: model.Change}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch := []operation{{"replace", "/metadata/labels", content.Labels}, {"replace", "/metadata/annotations", content.Annotations}}
	if known := c.known[key]; known.Version != 0 && c.random.IntN(3) > 0 {
		spec.IfValue = known.Value
		patch = append([]operation{{"test", "/metadata/annotations/" + history.ValueAnnotation, known.Value}}, patch...)
	}
	c.writeObject(ctx, spec, request{method: http.MethodPatch, key: key, contentType: jsonPatch, body: patch}, content)
}

func (c *client) apply(ctx context.Context, key, generation string) {
	query := url.Values{"fieldManager": {"linearize"}, "force": {"true"}}
	c.writeObject(ctx, model.Request{Verb: model.Apply}, request{method: http.MethodPatch, key: key, query: query, contentType: string(types.ApplyPatchType)}, c.content(key, generation))
}

// writeObject sends a write of content, which is the body if the request has none.
func (c *client) writeObject(ctx context.Context, spec model.Request, r request, content *metav1.PartialObjectMetadata) model.Response {
	spec.Key, spec.Value = content.Name, content.Annotations[history.ValueAnnotation]
	if r.body == nil {
		r.body = content
	}
	if r.contentType == "" {
		r.contentType = plainJSON
	}
	seen, call := c.traffic.record.highest.Load(), c.traffic.record.now()
	resp := c.send(ctx, r)
	o := model.Operation{Client: c.id, Request: spec, Call: call, Return: c.traffic.record.now()}
	o.Response.Outcome = c.outcome(r, resp)
	var object history.Object
	if o.Response.Outcome == model.OK {
		object = c.object(resp.body)
		c.known[spec.Key] = object
		c.traffic.record.see(object.Version)
		o.Response = responseOf(object)
		o.Response.Created = resp.code == http.StatusCreated
	}
	c.traffic.record.add(func(r *record) {
		r.operations = append(r.operations, o)
		if object.Version != 0 {
			r.run.Writes = append(r.run.Writes, history.Write{Object: object, After: seen})
		}
	})
	return o.Response
}

func responseOf(o history.Object) model.Response {
	return model.Response{Outcome: model.OK, Version: o.Version, UID: o.UID, Value: o.Value}
}

// delete deletes an object, with or without preconditions.
func (c *client) delete(ctx context.Context, key, _ string) {
	spec := model.Request{Verb: model.Delete, Key: key}
	options := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}}
	if known := c.known[key]; known.Version != 0 {
		version, uid := strconv.FormatUint(known.Version, 10), types.UID(known.UID)
		switch c.random.IntN(3) {
		case 0:
			spec.IfVersion, options.Preconditions = known.Version, &metav1.Preconditions{ResourceVersion: &version}
		case 1:
			spec.IfUID, options.Preconditions = known.UID, &metav1.Preconditions{UID: &uid}
		}
	}
	r := request{method: http.MethodDelete, key: key, contentType: plainJSON, body: options}
	o := model.Operation{Client: c.id, Request: spec, Call: c.traffic.record.now()}
	resp := c.send(ctx, r)
	o.Return, o.Response.Outcome = c.traffic.record.now(), c.outcome(r, resp)
	if o.Response.Outcome == model.OK {
		var status metav1.Status
		if err := json.Unmarshal(resp.body, &status); err != nil || status.Details == nil || status.Details.UID == "" {
			c.traffic.record.unexpectedf("delete of %s: %s", key, resp.body)
			return
		}
		o.Response.UID = string(status.Details.UID)
	}
	c.traffic.record.add(func(r *record) {
		r.operations = append(r.operations, o)
		if o.Response.Outcome == model.OK {
			r.run.Deletes = append(r.run.Deletes, history.Delete{Key: key, UID: o.Response.UID})
		}
	})
}

// deleteCollection deletes the objects of a generation. For each object it is a read and,
// if it finds the object, a delete.
func (c *client) deleteCollection(ctx context.Context, generation int) {
	r := request{method: http.MethodDelete, query: url.Values{"labelSelector": {generationLabel + "=" + strconv.Itoa(generation)}}}
	call := c.traffic.record.now()
	resp := c.send(ctx, r)
	found := map[string]history.Object{}
	if resp.succeeded() {
		for _, o := range c.list(resp.body).objects {
			found[o.Key] = o
		}
	} else {
		c.outcome(r, resp) // for an unexpected one
	}
	var operations []model.Operation
	for _, key := range keysOf(generation) {
		o := model.Operation{Client: c.id, Request: model.Request{Verb: model.Remove, Key: key}, Call: call, Return: c.traffic.record.now()}
		object, listed := found[key]
		switch {
		case !resp.succeeded():
			o.Response.Outcome = model.Unknown
			operations = append(operations, o)
		case listed:
			o.Response.Outcome = model.OK
			operations = append(operations, o)
			o.Request.Verb, o.Response = model.Get, responseOf(object)
			operations = append(operations, o)
		default:
			o.Request.Verb, o.Response.Outcome = model.Get, model.NotFound
			operations = append(operations, o)
		}
	}
	c.traffic.record.add(func(r *record) { r.operations = append(r.operations, operations...) })
}

// createLast creates the last object, and returns its version, or 0 if there was no response.
func (c *client) createLast(ctx context.Context) uint64 {
	content := c.content(lastKey, lastKey)
	content.Labels[history.HalfLabel] = "even"
	resp := c.writeObject(ctx, model.Request{Verb: model.Create}, request{method: http.MethodPost}, content)
	if resp.Outcome != model.Exists { // of an earlier attempt
		return resp.Version
	}
	get := request{method: http.MethodGet, key: lastKey}
	if found := c.send(ctx, get); c.outcome(get, found) == model.OK {
		return c.object(found.body).Version
	}
	return 0
}

// changeLast changes the last object, once, so that other selectors match it. It reports
// whether this or an earlier attempt succeeded.
func (c *client) changeLast(ctx context.Context, version uint64) bool {
	content := c.content(lastKey, lastKey)
	content.Labels[history.HalfLabel] = "odd"
	content.ResourceVersion = strconv.FormatUint(version, 10)
	resp := c.writeObject(ctx, model.Request{Verb: model.Change, IfVersion: version}, request{method: http.MethodPut, key: lastKey}, content)
	return resp.Outcome == model.OK || resp.Outcome == model.Conflict
}
