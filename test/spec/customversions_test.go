package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

// version is a version of a definition in JSON, with further members, whose spec has
// the schema.
func version(name string, storage bool, members, spec string) string {
	return fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,%s"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":%s}}}}`, name, storage, members, spec)
}

var _ = Describe("Custom resources over time", func() {
	const free = `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`
	group := func(name string) string { return definitions + "/things." + name + ".example.com" }
	patch := func(ctx SpecContext, path, body string) launch.Response {
		GinkgoHelper()
		return send(ctx, launch.Request{Method: "PATCH", Path: path, ContentType: mergePatch, Body: body})
	}
	thing := func(name, version, spec string) string {
		return fmt.Sprintf(`{"apiVersion":"%s.example.com/%s","kind":"Thing","metadata":{"name":"t"},"spec":%s}`, name, version, spec)
	}
	served := func(ctx SpecContext, path string) {
		GinkgoHelper()
		Eventually(ctx, func(g Gomega) {
			g.Expect(send(ctx, launch.Request{Method: "GET", Path: path}).Status).To(Equal(200))
		}).Should(Succeed())
	}

	It("objects of an earlier storage version are served in all versions, and migrate when they are written", func(ctx SpecContext) {
		path := define(ctx, "migrated", "")
		create(ctx, path, thing("migrated", "v1", `{"a":1}`))
		parse(patch(ctx, group("migrated"), `{"spec":{"versions":[`+version("v1", false, "", free)+`,`+version("v2", true, "", free)+`]}}`), 200)
		second := strings.Replace(path, "/v1/", "/v2/", 1)
		served(ctx, second)
		Expect(get(ctx, second+"/t")).To(And(HaveKeyWithValue("apiVersion", "migrated.example.com/v2"), HaveKeyWithValue("spec", HaveKey("a"))))
		Expect(get(ctx, group("migrated"))["status"]).To(HaveKeyWithValue("storedVersions", ConsistOf("v1", "v2")))
		Expect(failed(patch(ctx, group("migrated"), `{"spec":{"versions":[`+version("v2", true, "", free)+`]}}`), 422).Message).To(
			ContainSubstring("status.storedVersions[0]"), "v1 may still be stored")
		parse(patch(ctx, second+"/t", `{"spec":{"migrated":"yes"}}`), 200)
		parse(patch(ctx, group("migrated")+"/status", `{"status":{"storedVersions":["v2"]}}`), 200)
		parse(patch(ctx, group("migrated"), `{"spec":{"versions":[`+version("v2", true, "", free)+`]}}`), 200)
		Eventually(ctx, func(g Gomega) {
			g.Expect(send(ctx, launch.Request{Method: "GET", Path: path + "/t"}).Status).To(Equal(404))
		}).Should(Succeed())
		Expect(get(ctx, second+"/t")["spec"]).To(HaveKeyWithValue("migrated", "yes"))
	})

	It("a conversion webhook that is absent fails the requests that need it, and only these, with its name", func(ctx SpecContext) {
		path := define(ctx, "converted", "")
		create(ctx, path, thing("converted", "v1", `{"a":1}`))
		parse(patch(ctx, group("converted"), `{"spec":{"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],
			"clientConfig":{"url":"https://127.0.0.1:1/convert"}}},"versions":[`+version("v1", true, "", free)+`,`+version("v2", false, "", free)+`]}}`), 200)
		second := strings.Replace(path, "/v1/", "/v2/", 1)
		Eventually(ctx, func(g Gomega) {
			resp := send(ctx, launch.Request{Method: "GET", Path: second + "/t"})
			g.Expect(resp.Status).To(Equal(500))
			g.Expect(resp.Body).To(ContainSubstring("conversion webhook for converted.example.com/v1, Kind=Thing failed"))
		}).Should(Succeed())
		Expect(get(ctx, path+"/t")["spec"]).To(HaveKey("a"))
		soon(ctx, launch.Request{Method: "GET", Path: "/readyz"}, 200)
	})

	It("an object that a stricter schema does not allow may be changed elsewhere", func(ctx SpecContext) {
		const before, after = `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}}}`, `{"type":"object","properties":{"a":{"type":"string","maxLength":1},"b":{"type":"string","maxLength":9}}}`
		path := defineSpec(ctx, "ratcheted", "", before)
		create(ctx, path, thing("ratcheted", "v1", `{"a":"long"}`))
		parse(patch(ctx, group("ratcheted"), `{"spec":{"versions":[`+version("v1", true, "", after)+`]}}`), 200)
		Eventually(ctx, func(g Gomega) {
			g.Expect(patch(ctx, path+"/t?dryRun=All", `{"spec":{"b":"much too long"}}`).Status).To(Equal(422))
		}).Should(Succeed())
		parse(patch(ctx, path+"/t", `{"spec":{"b":"short"}}`), 200)
		Expect(failed(patch(ctx, path+"/t", `{"spec":{"a":"longer"}}`), 422).Message).To(ContainSubstring("spec.a"))
	})

	It("fields that the definition names select objects, in lists and watches", func(ctx SpecContext) {
		shared := server
		DeferCleanup(func() { server = shared })
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		server = up(ctx, filepath.Join(dir, "data"), "--release=1.32") // stable since
		path := defineSpec(ctx, "selected", `"selectableFields":[{"jsonPath":".spec.color"}],`, `{"type":"object","properties":{"color":{"type":"string"}}}`)
		create(ctx, path, thing("selected", "v1", `{"color":"blue"}`))
		create(ctx, path, strings.Replace(thing("selected", "v1", `{"color":"red"}`), `"t"`, `"other"`, 1))
		list := get(ctx, path+"?fieldSelector=spec.color%3Dblue")
		Expect(list["items"]).To(HaveLen(1))
		Expect(watched(ctx, server, path+"?fieldSelector=spec.color%3Dblue", atLeast(1))).To(HaveLen(1))
		failed(send(ctx, launch.Request{Method: "GET", Path: path + "?fieldSelector=spec.size%3D1"}), 400)
	})

	Describe("Document 2, section 8: limits of expressions", func() {
		post := func(ctx SpecContext, name, spec string) launch.Response {
			GinkgoHelper()
			return send(ctx, launch.Request{Method: "POST", Path: definitions, ContentType: inJSON, Body: fmt.Sprintf(`{"metadata":{"name":"things.%[1]s.example.com"},"spec":{
				"group":"%[1]s.example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},"versions":[%[2]s]}}`, name, version("v1", true, "", spec))})
		}
		It("a rule whose estimated cost is prohibitive is refused", func(ctx SpecContext) {
			status := failed(post(ctx, "costly", `{"type":"object","properties":{"list":{"type":"array","items":{"type":"string"}}},
				"x-kubernetes-validations":[{"rule":"self.list.all(a, self.list.all(b, self.list.all(c, a + b != c)))"}]}`), 422)
			Expect(status.Message).To(ContainSubstring("estimated rule cost exceeds budget"))
		})
		It("the rules of a resource share a budget", func(ctx SpecContext) {
			var rules []string
			for range 40 {
				rules = append(rules, `{"rule":"self.list.all(a, a.matches('^(x+)+y$'))"}`)
			}
			status := failed(post(ctx, "together", `{"type":"object","properties":{"list":{"type":"array","maxItems":20000,"items":{"type":"string","maxLength":500}}},
				"x-kubernetes-validations":[`+strings.Join(rules, ",")+`]}`), 422)
			Expect(status.Message).To(ContainSubstring("contributed to estimated rule cost total exceeding"))
		})
		It("a rule whose cost at run time is beyond the budget fails the request", func(ctx SpecContext) {
			path := defineSpec(ctx, "exceeding", "", `{"type":"object","properties":{"list":{"type":"array","maxItems":700,"items":{"type":"integer"}}},
				"x-kubernetes-validations":[{"rule":"self.list.all(a, self.list.all(b, a + b >= 0))"}]}`)
			create(ctx, path, thing("exceeding", "v1", `{"list":[1,2,3]}`))
			status := failed(send(ctx, launch.Request{Method: "POST", Path: path, ContentType: inJSON, Body: strings.Replace(
				thing("exceeding", "v1", `{"list":[`+strings.TrimSuffix(strings.Repeat("1,", 700), ",")+`]}`), `"t"`, `"large"`, 1)}), 422)
			Expect(status.Message).To(ContainSubstring("call cost exceeds limit"))
		})
		It("a field that is not declared is refused when the rule is checked", func(ctx SpecContext) {
			status := failed(post(ctx, "undeclared", `{"type":"object","properties":{"a":{"type":"string"}},"x-kubernetes-validations":[{"rule":"self.b == 'x'"}]}`), 422)
			Expect(status.Message).To(ContainSubstring("undefined field 'b'"))
		})
	})

	DescribeTable("Document 2, section 2: the libraries of expressions", func(ctx SpecContext, name, rule string) {
		path := defineSpec(ctx, name, "", `{"type":"object","properties":{"list":{"type":"array","maxItems":9,"items":{"type":"integer"}},
			"set":{"type":"array","maxItems":9,"x-kubernetes-list-type":"set","items":{"type":"string","maxLength":9}},"text":{"type":"string","maxLength":50},"class":{"type":"string"},
			"a-b":{"type":"string"},"a__b":{"type":"string"},"in":{"type":"string"},"maps":{"type":"array","maxItems":3,
			"items":{"type":"array","maxItems":9,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
			"items":{"type":"object","required":["name"],"properties":{"name":{"type":"string","maxLength":9},"v":{"type":"integer"}}}}}},"x-kubernetes-validations":[{"rule":"`+rule+`"}]}`)
		create(ctx, path, thing(name, "v1", `{"list":[1,2,2,3],"set":["a","b"],"text":"abc 123","class":"c","a-b":"d","a__b":"u","in":"i","maps":[[{"name":"a","v":1},{"name":"b","v":2}],[{"name":"b","v":2},{"name":"a","v":1}],[{"name":"c","v":3},{"name":"a","v":9}]]}`))
		failed(send(ctx, launch.Request{Method: "POST", Path: path, ContentType: inJSON, Body: strings.Replace(
			thing(name, "v1", `{"list":[5,1],"set":["z"],"text":"none","class":"x","a-b":"x","a__b":"x","in":"x","maps":[[{"name":"x","v":0}],[],[{"name":"y","v":0}]]}`), `"t"`, `"refused"`, 1)}), 422)
	},
		Entry("indexOf and lastIndexOf", "celindex", "self.list.indexOf(2) == 1 && self.list.lastIndexOf(2) == 2"),
		Entry("min, max and sum", "celsum", "self.list.min() == 1 && self.list.max() == 3 && self.list.sum() == 8 && [duration('1s'), duration('2s')].sum() == duration('3s')"),
		Entry("isSorted", "celsorted", "self.list.isSorted()"),
		Entry("find and findAll", "celfind", "self.text.find('[0-9]+') == '123' && self.text.findAll('[a-z0-9]+').size() == 2"),
		Entry("sets are equal in any order", "celset", "self.set == ['b', 'a']"),
		Entry("sets are joined as a union", "celunion", "(self.set + ['b', 'c']).size() == 3 && (self.set + ['a'])[0] == 'a'"),
		Entry("names are escaped", "celescape", "self.class == 'c' && self.a__dash__b == 'd'"),
		Entry("URLs", "celurl", "isURL('https://a.example:8080/p?q=1') && url('https://a.example:8080/p?q=1').getHost() == 'a.example:8080' && url('https://a.example:8080/p?q=1').getPort() == '8080' && "+
			"url('https://a.example:8080/p?q=1').getQuery()['q'] == ['1'] && url('https://a.example:8080/p?q=1').getEscapedPath() == '/p' && !isURL(self.text) && self.text != 'none'"),
		Entry("has", "celhas", "has(self.text) && self.text != 'none'"),
		Entry("maps are equal in any order", "celmapequal", "self.maps[0] == self.maps[1]"),
		Entry("maps are merged by their keys", "celmapmerge", "(self.maps[0] + self.maps[2]).map(e, e.name) == ['a', 'b', 'c'] && (self.maps[0] + self.maps[2])[0].v == 9"),
		Entry("lists that are atomic keep their order", "celatomic", "self.list == [1, 2, 2, 3] && self.list != [2, 1, 2, 3]"),
		Entry("names with underscores and reserved words", "celreserved", "self.a__underscores__b == 'u' && self.__in__ == 'i'"),
	)
})
