// Package dryrun owns the acceptance of the query parameter dryRun without a value.
package dryrun

import (
	"net/http"
	"net/url"

	"svc.dev/svc/apiserver/filters/original"
)

// Filter removes a dryRun parameter that has no value, which means the same as
// no parameter (document 1, section 4, Dry-run, rule 1). The library's handlers
// refuse it.
func Filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if query := req.URL.RawQuery; query != "" {
			if changed := withoutEmpty(query); changed != query {
				req = original.Copy(req, func(sent *http.Request) { sent.URL.RawQuery = query })
				req.URL.RawQuery = changed
			}
		}
		next.ServeHTTP(w, req)
	})
}

// withoutEmpty returns the query without an empty dryRun. It does not change a query
// that it cannot parse or that has several values, which the handlers refuse.
func withoutEmpty(raw string) string {
	query, err := url.ParseQuery(raw)
	if values, given := query["dryRun"]; err != nil || !given || len(values) != 1 || values[0] != "" {
		return raw
	}
	query.Del("dryRun")
	return query.Encode()
}
