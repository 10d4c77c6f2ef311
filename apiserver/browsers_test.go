package apiserver_test

import (
	"net/http"
	"testing"
)

func TestCORSAndHSTSHeadersAreSentOnlyWithTheFlags(t *testing.T) {
	for _, flagged := range []bool{false, true} {
		o, _ := newOptions(t)
		want := map[string]string{"Access-Control-Allow-Origin": "", "Strict-Transport-Security": ""}
		if flagged {
			o.Requests.CORSOrigins = []string{"^https://console[.]example[.]com(:|$)"}
			o.Requests.HSTSDirectives = []string{"max-age=60", "preload"}
			want = map[string]string{"Access-Control-Allow-Origin": "https://console.example.com:8443", "Strict-Transport-Security": "max-age=60; preload"}
		}
		r := start(t, o)
		headers := func(origin string) http.Header {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/version", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Origin", origin)
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			return resp.Header
		}
		got := headers("https://console.example.com:8443")
		for name, value := range want {
			if got.Get(name) != value {
				t.Errorf("with the flags %v: %s is %q, want %q", flagged, name, got.Get(name), value)
			}
		}
		if value := headers("https://console.example.com.evil.net").Get("Access-Control-Allow-Origin"); value != "" {
			t.Errorf("another origin is allowed as %q", value)
		}
		r.stop(t)
	}
}
