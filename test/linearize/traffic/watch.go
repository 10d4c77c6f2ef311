package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"svc.dev/svc/test/linearize/history"
)

// follow watches from a version until the last change, and resumes a watch that ends.
func (c *client) follow(ctx context.Context, selector history.Selector, version uint64, bookmarks bool) {
	for ctx.Err() == nil {
		query := url.Values{"resourceVersion": {strconv.FormatUint(version, 10)}, "allowWatchBookmarks": {strconv.FormatBool(bookmarks)}}
		w := history.Watch{Selector: selector, From: version}
		expired := c.watch(ctx, query, &w)
		if w.Complete {
			return
		}
		switch {
		case expired:
			if version = c.current(ctx, version); c.traffic.record.finished(version) {
				return
			}
		case len(w.Events) > 0:
			version = w.Events[len(w.Events)-1].Version
		}
		c.pause(ctx)
	}
	c.traffic.record.unexpectedf("a watch of %+v from version %d did not get the last change, %d", selector, version, c.traffic.record.last.Load())
}

// current lists the objects as an informer does when its version has expired, and returns
// the version of the list, or the one given if there was no response.
func (c *client) current(ctx context.Context, version uint64) uint64 {
	l := history.List{Name: "after an expired watch", AtLeast: c.traffic.record.highest.Load()}
	if !c.pages(ctx, url.Values{}, &l) {
		return version
	}
	c.traffic.record.add(func(r *record) { r.run.Lists = append(r.run.Lists, l) })
	return l.Version
}

// stray watches for a short time again and again, with all ways to start.
func (c *client) stray(ctx context.Context) {
	for c.pause(ctx) {
		w := history.Watch{Selector: c.selector()}
		query := url.Values{"allowWatchBookmarks": {strconv.FormatBool(c.random.IntN(2) == 0)}}
		seen := c.traffic.record.highest.Load()
		version := strconv.FormatUint(seen, 10)
		switch c.random.IntN(7) {
		case 0:
			w.Initial = true
		case 1:
			w.Initial = true
			query.Set("resourceVersion", "0")
		case 2, 3:
			w.Initial, w.AtLeast = true, seen
			query = url.Values{"sendInitialEvents": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersionMatch": {"NotOlderThan"}}
			if c.random.IntN(2) == 0 {
				query.Set("resourceVersion", version)
			}
		case 4:
			w.Initial = true
			query = url.Values{"sendInitialEvents": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersionMatch": {"NotOlderThan"}, "resourceVersion": {"0"}}
		default:
			// A version before the latest has events that the watch must send.
			if len(c.versions) > 0 && c.random.IntN(2) == 0 {
				seen = c.versions[c.random.IntN(len(c.versions))]
			}
			w.From = seen
			query.Set("resourceVersion", strconv.FormatUint(seen, 10))
			c.versions = append(c.versions[max(0, len(c.versions)-maxVersions):], c.traffic.record.highest.Load())
		}
		if c.random.IntN(3) == 0 {
			query.Set("timeoutSeconds", "2")
		}
		ctx, cancel := context.WithTimeout(ctx, time.Duration(c.random.Int64N(int64(3*time.Second))))
		c.watch(ctx, query, &w)
		cancel()
	}
}

// watch records a watch until it ends or has the last change. It reports whether the
// version to start from has expired.
func (c *client) watch(ctx context.Context, query url.Values, w *history.Watch) (expired bool) {
	query.Set("watch", "true")
	setSelector(query, w.Selector)
	w.Name = fmt.Sprintf("of client %d, %s", c.id, query.Encode())
	r := request{method: http.MethodGet, query: query}
	resp, err := c.open(ctx, r)
	if err != nil {
		return false // the client tries again
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var status metav1.Status
		if err := json.NewDecoder(resp.Body).Decode(&status); err == nil && resp.StatusCode < 500 && resp.StatusCode != http.StatusGone && resp.StatusCode != http.StatusTooManyRequests {
			c.traffic.record.unexpectedf("watch %s: %d %s", w.Name, resp.StatusCode, status.Message)
		}
		return resp.StatusCode == http.StatusGone
	}
	expired = c.receive(json.NewDecoder(resp.Body), w)
	c.traffic.record.add(func(r *record) { r.run.Watches = append(r.run.Watches, *w) })
	return expired
}

// receive appends the events of a response to the watch.
func (c *client) receive(events *json.Decoder, w *history.Watch) (expired bool) {
	for {
		var event metav1.WatchEvent
		if err := events.Decode(&event); err != nil {
			return false // the connection has ended
		}
		if event.Type == string(watch.Error) {
			var status metav1.Status
			if err := json.Unmarshal(event.Object.Raw, &status); err != nil || status.Code < 500 && status.Code != http.StatusGone && status.Code != http.StatusTooManyRequests {
				c.traffic.record.unexpectedf("watch %s: %s", w.Name, event.Object.Raw)
			}
			return status.Code == http.StatusGone
		}
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(event.Object.Raw, &object); err != nil {
			c.traffic.record.unexpectedf("watch %s: %v", w.Name, err)
			return false
		}
		e := history.Event{Type: event.Type, Object: history.ObjectOf(&object, c.version(object.ResourceVersion))}
		e.InitialEnd = event.Type == history.Bookmark && object.Annotations[metav1.InitialEventsAnnotationKey] == "true"
		w.Events = append(w.Events, e)
		if e.Key == lastKey && c.traffic.record.finished(e.Version) {
			w.Complete = true
			return false
		}
	}
}
