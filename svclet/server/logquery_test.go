package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/server"
)

func TestLogsOfServicesAreQueried(t *testing.T) {
	n := start(t, func(o *server.Options, p *server.Parts) {
		o.EnableSystemLogQuery = true
		write(t, filepath.Join(o.LogDirectory, "messages"), []byte("all\n"))
		write(t, filepath.Join(o.LogDirectory, "agent.log"), []byte("of a file\n"))
		// A journal with entries of sshd and of containerd.
		p.Journal = func(ctx context.Context, args []string, out io.Writer) error {
			if deadline, has := ctx.Deadline(); !has || time.Until(deadline) > 30*time.Second {
				t.Errorf("journalctl has the deadline %v, %v", deadline, has)
			}
			has := slices.Contains(args, "--unit=sshd") || slices.Contains(args, "--unit=containerd")
			if slices.Contains(args, "--unit=broken") && !slices.Contains(args, "--quiet") {
				return errors.New("exit status 1")
			}
			if has || slices.Contains(args, "--unit=broken") {
				fmt.Fprintln(out, strings.Join(args, " "))
			}
			return nil
		}
	})
	const common = "--utc --no-pager --output=short-precise"
	for _, test := range []struct{ path, query, want string }{
		{"/logs/", "query=sshd", "200 " + common + " --unit=sshd\n"},
		{"/logs/", "query=sshd&query=containerd&tailLines=5&boot=-1&pattern=a.*b&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-01-02T05:04:05%2B03:00",
			"406 untilTime: Invalid value: \"2026-01-02T05:04:05+03:00\": must be after `sinceTime`\n"},
		{"/logs/", "query=sshd&query=containerd&tailLines=5&boot=-1&pattern=a.*b&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-01-02T03:05:05Z",
			"200 " + common + " --since=2026-01-02 03:04:05 --until=2026-01-02 03:05:05 --lines=5 --unit=sshd --unit=containerd --grep=a.*b --boot=-1\n"},
		{"/logs/", "query=agent", "200 of a file\n"},
		{"/logs/", "query=agent&tailLines=1", "200 \nfailed to get logs for agent: it logs to a file: options are for services that log to the journal\n"},
		{"/logs/", "query=absent", "200 \nfailed to get logs for absent: journal and "},
		{"/logs/", "query=broken", "200 \nfailed to read the journal: exit status 1\n"},
		{"/logs/", "query=/messages", "200 all\n"},
		{"/logs/messages", "", "200 all\n"},
		{"/logs/", "query=/messages&query=sshd", "406 query: Invalid value: \"[/messages], [sshd]\": cannot specify a file and service\n"},
		{"/logs/", "query=/messages&query=/agent.log", "406 query: Invalid value: \"[/messages /agent.log], []\": cannot specify more than one file\n"},
		{"/logs/", "query=/messages&tailLines=1", "406 query: Invalid value: \"[/messages], []\": cannot specify file with options\n"},
		{"/logs/", "query=/../../etc/passwd", "406 query: Invalid value: \"/../../etc/passwd\": "},
		{"/logs/messages", "query=sshd", "406 path not allowed in query mode\n"},
		{"/logs/", "tailLines=5", "406 query: Required value: cannot be empty with options\n"},
		{"/logs/", "query=%20", "400 query: Invalid value: "},
		{"/logs/", "query=sshd&tailLines=x", "400 tailLines: Invalid value: \"x\": "},
		{"/logs/", "query=sshd&tailLines=100001", "406 tailLines: Invalid value: 100001: must be between 0 and 100000\n"},
		{"/logs/", "query=sshd&boot=1", "406 boot: Invalid value: 1: must be less than 1\n"},
		{"/logs/", "query=sshd&sinceTime=yesterday", "400 sinceTime: Invalid value: \"yesterday\": invalid time format\n"},
		{"/logs/", "query=--file%3Dx", "406 query: Invalid value: \"--file=x\": input contains unsupported characters\n"},
		{"/logs/", "query=" + strings.Repeat("x", 256), "200 "},
		{"/logs/", "query=" + strings.Repeat("x", 257), "406 query: Invalid value: "},
		{"/logs/", "query=agent&query=agent&query=agent&query=agent", "200 of a file\nof a file\nof a file\nof a file\n"},
		{"/logs/", "query=a&query=b&query=c&query=d&query=e", "406 query: Too many: 5: must have at most 4 items\n"},
		{"/logs/", "query=sshd&pattern=a(b", "406 pattern: Invalid value: \"a(b\": error parsing regexp: missing closing ): `a(b`\n"},
	} {
		values, err := url.ParseQuery(test.query)
		if err != nil {
			t.Fatal(err)
		}
		code, body := n.get(t, test.path, values)
		if got := fmt.Sprint(code, " ", body); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s?%s is answered %q, want %q", test.path, test.query, got, test.want)
		}
	}
}

func TestContainersAreCheckpointed(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	n := start(t, func(o *server.Options, p *server.Parts) {
		o.CheckpointDirectory, p.Clock = "/checkpoints", clocktesting.NewFakeClock(at)
	})
	n.pods.add(web())
	post := func(path, query string) string {
		to := n.url(path, nil)
		to.RawQuery = query
		code, body := fetch(t, n.client, http.MethodPost, to.String(), nil)
		return fmt.Sprint(code, " ", body)
	}
	for _, test := range []struct{ path, query, want string }{
		{"/checkpoint/default/web/main", "timeout=7", `200 {"items":["/checkpoints/checkpoint-web_default-main-2026-01-02T03:04:05Z.tar"]}`},
		{"/checkpoint/default/other/main", "", "404 pod does not exist"},
		{"/checkpoint/default/web/other", "", "404 container other does not exist"},
		{"/checkpoint/default/web/main", "timeout=x", "404 cannot parse value of timeout parameter"},
		{"/checkpoint/default/web/done", "", "500 checkpointing of default/web/done failed (container done not found)"},
	} {
		if got := post(test.path, test.query); got != test.want {
			t.Errorf("%s is answered %q, want %q", test.path, got, test.want)
		}
	}
	n.runtime.mu.Lock()
	n.runtime.refuse = errors.New("the runtime does not implement it")
	done := strings.Join(n.runtime.checkpoints, "\n")
	n.runtime.mu.Unlock()
	if want := "main-id checkpoint-web_default-main-2026-01-02T03:04:05Z.tar 7s"; done != want {
		t.Errorf("the runtime has made %q, want %q", done, want)
	}
	if got := post("/checkpoint/default/web/main", ""); got != "500 checkpointing of default/web/main failed (the runtime does not implement it)" {
		t.Error(got)
	}
	if code, _ := n.get(t, "/checkpoint/default/web/main", nil); code != http.StatusMethodNotAllowed {
		t.Errorf("GET is answered %d", code)
	}
}
