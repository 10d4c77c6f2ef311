package alias

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRequestHeaders(t *testing.T) {
	for _, tc := range []struct {
		name, header, domain, in, want string
	}{
		{name: "protobuf in Accept", header: "Accept", in: "application/vnd.svc.protobuf", want: "application/vnd.kubernetes.protobuf"},
		{name: "protobuf watches", header: "Accept", in: "application/vnd.svc.protobuf;stream=watch,application/json", want: "application/vnd.kubernetes.protobuf;stream=watch,application/json"},
		{name: "protobuf in Content-Type", header: "Content-Type", in: "application/vnd.svc.protobuf", want: "application/vnd.kubernetes.protobuf"},
		{name: "Kubernetes' protobuf stays", header: "Accept", in: "application/vnd.kubernetes.protobuf", want: "application/vnd.kubernetes.protobuf"},
		{name: "tables of svc.dev", header: "Accept", in: "application/json;as=Table;v=v1;g=meta.svc.dev,application/json", want: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"},
		{name: "tables of the group domain", header: "Accept", domain: "corp.example", in: "application/json; as=Table; g=meta.corp.example; v=v1", want: "application/json; as=Table; g=meta.k8s.io; v=v1"},
		{name: "several tables", header: "Accept", in: "application/vnd.svc.protobuf;as=Table;g=meta.svc.dev;v=v1,application/json;as=Table;g=meta.svc.dev;v=v1", want: "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json;as=Table;g=meta.k8s.io;v=v1"},
		{name: "Kubernetes' tables stay", header: "Accept", in: "application/json;as=Table;g=meta.k8s.io;v=v1", want: "application/json;as=Table;g=meta.k8s.io;v=v1"},
		{name: "another group stays", header: "Accept", in: "application/json;as=Table;g=meta.svc.developer;v=v1", want: "application/json;as=Table;g=meta.svc.developer;v=v1"},
		{name: "another parameter stays", header: "Accept", in: "application/json;bag=meta.svc.dev", want: "application/json;bag=meta.svc.dev"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.domain == "" {
				tc.domain = kubeDomain
			}
			var got string
			h := Filter(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get(tc.header) }), tc.domain, both)
			r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
			r.Header.Set(tc.header, tc.in)
			h.ServeHTTP(httptest.NewRecorder(), r)
			if got != tc.want {
				t.Errorf("%s: %s\nwant %s", tc.header, got, tc.want)
			}
			if r.Header.Get(tc.header) != tc.in {
				t.Error("the caller's request was modified")
			}
		})
	}
}

func TestTheWorkForAHeaderGrowsWithItsLength(t *testing.T) {
	const groups = 10_000
	value := "application/json" + strings.Repeat(";g=meta.svc.dev", groups)
	for _, header := range []string{"Accept", "Content-Type"} {
		h := Filter(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if got := strings.Count(r.Header.Get(header), ";g=meta.k8s.io"); got != groups {
				t.Errorf("%s: %d groups are translated, want %d", header, got, groups)
			}
		}), kubeDomain, both)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(header, value)
		if n := testing.AllocsPerRun(1, func() { h.ServeHTTP(httptest.NewRecorder(), r) }); n > 1000 {
			t.Errorf("%s: %v allocations: the header is copied for each group", header, n)
		}
	}
}

func TestTheContentTypeHasTheSpellingOfTheRequest(t *testing.T) {
	for _, tc := range []struct {
		name, accept, answer, want string
	}{
		{name: "svc's protobuf", accept: svcProtobuf, answer: kubeProtobuf, want: svcProtobuf},
		{name: "svc's watch", accept: svcProtobuf + ";stream=watch", answer: kubeProtobuf + ";stream=watch", want: svcProtobuf + ";stream=watch"},
		{name: "Kubernetes' protobuf", accept: kubeProtobuf, answer: kubeProtobuf, want: kubeProtobuf},
		{name: "an answer in JSON", accept: svcProtobuf + ",application/json", answer: "application/json", want: "application/json"},
		{name: "a table in protobuf, asked by Kubernetes' name", accept: kubeProtobuf + ";as=Table;g=meta.svc.dev;v=v1", answer: kubeProtobuf, want: kubeProtobuf},
	} {
		for way, send := range map[string]func(w http.ResponseWriter){
			"WriteHeader": func(w http.ResponseWriter) { w.WriteHeader(http.StatusConflict) },
			"Write":       func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) },
			"Flush":       func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		} {
			t.Run(tc.name+" by "+way, func(t *testing.T) {
				server := httptest.NewServer(Filter(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", tc.answer)
					send(w)
				}), kubeDomain, both))
				defer server.Close()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Accept", tc.accept)
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if got := resp.Header.Get("Content-Type"); got != tc.want {
					t.Errorf("Content-Type = %q, want %q", got, tc.want)
				}
			})
		}
	}
}

func TestConnectionCanStillBeHijacked(t *testing.T) {
	server := httptest.NewServer(Filter(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\nhello")
		_ = buffered.Flush()
	}), kubeDomain, both))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nAccept: "+svcProtobuf+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(bufio.NewReader(conn))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(answer), "hello") {
		t.Errorf("answer = %q", answer)
	}
}

func TestRequestWithoutAliasCostsNoAllocation(t *testing.T) {
	h := Filter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "corp.example", both)
	r := requestOfKubectl()
	w := httptest.NewRecorder()
	if n := testing.AllocsPerRun(100, func() { h.ServeHTTP(w, r) }); n != 0 {
		t.Errorf("%v allocations per request, want none", n)
	}
}

func BenchmarkRequestWithoutAlias(b *testing.B) {
	h := Filter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), kubeDomain, both)
	r := requestOfKubectl()
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}

func requestOfKubectl() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/default/pods", nil)
	r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json")
	r.Header.Set("Content-Type", "application/json")
	return r
}
