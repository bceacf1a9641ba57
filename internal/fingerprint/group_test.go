package fingerprint

import (
	"strings"
	"testing"
)

// long returns a text with a cause at its end and perhaps one in its middle.
func long(end, middle string) string {
	words := strings.Repeat("green blue ", 2000)
	return "cannot store: " + words + middle + " " + words + end
}

// Each list has groups of texts: those of one group have one cause, those of two groups have two.
var groups = map[string][][]string{
	"Chinese": {
		{"订单4711支付失败", "订单90210支付失败", "订单４７１１支付失败"}, {"库存4711扣减失败", "库存12扣减失败"}, {"节点12宕机", "节点7宕机"}, {"数据库连接失败503"}, {"数据库连接失败404"},
		{"第3次重试失败：磁盘已满", "第5次重试失败：磁盘已满"}, {"第5次重试失败：权限不足"},
		{"网关返回 503"}, {"网关返回 404"}, {"网关返回503"}, {"支付网关返回状态码：503"}, {"支付网关返回状态码：404"}, {"错误代码17"}, {"错误代码42"}, {"错误码：17"}, {"错误码：42"},
		{"等待300秒后超时", "等待7秒后超时"}, {"端口5432连接被拒绝"}, {"端口6379连接被拒绝"},
		{"请求0190a5b2-7c1e-7d3f-9a44-0c8be1f2d6a7失败", "请求6f1c2f0e-52d1-4c0b-9a35-7e4b1d0a8c21失败"}, {"处理了500条记录", "处理了312条记录"},
	},
	"Japanese": {
		{"注文4711の支払いに失敗しました", "注文90210の支払いに失敗しました"}, {"在庫4711が不足しています", "在庫12が不足しています"}, {"ゲートウェイが503を返しました"}, {"ゲートウェイが404を返しました"},
		{"エラーコード17"}, {"エラーコード42"}, {"3回目の再試行に失敗しました", "5回目の再試行に失敗しました"}, {"データベースに接続できません"}, {"30秒でタイムアウト", "60秒でタイムアウト"},
	},
	"Korean": {
		{"주문4711결제실패", "주문90210결제실패"}, {"재고4711차감실패"}, {"게이트웨이 응답 503"}, {"게이트웨이 응답 404"}, {"오류 코드 17"}, {"오류 코드 42"}, {"주문 4711 결제 실패", "주문 90210 결제 실패"},
	},
	"Thai": {
		{"คำสั่งซื้อ4711ชำระเงินล้มเหลว", "คำสั่งซื้อ90210ชำระเงินล้มเหลว"}, {"สินค้า4711หมด", "สินค้า12หมด"}, {"รหัสข้อผิดพลาด 17"}, {"รหัสข้อผิดพลาด 42"},
	},
	"other languages": {
		{"Fehlercode 17"}, {"Fehlercode 42"}, {"Fehler 17"}, {"Fehler 42"}, {"Rückgabewert 3"}, {"Rückgabewert 4"}, {"Das Gateway antwortete mit 503"}, {"Das Gateway antwortete mit 404"}, {"Gateway meldet 503"}, {"Gateway meldet 404"},
		{"La passerelle a répondu 503"}, {"La passerelle a répondu 404"}, {"Le serveur a renvoyé 503"}, {"Le serveur a renvoyé 404"}, {"Code d'erreur 17"}, {"Code d'erreur 42"}, {"code retour : 3"}, {"code retour : 4"},
		{"El servidor respondió 503"}, {"El servidor respondió 404"}, {"La pasarela devolvió 503"}, {"La pasarela devolvió 404"}, {"código 17"}, {"código 42"}, {"Estado 503"}, {"Estado 404"},
		{"O servidor retornou 503"}, {"O servidor retornou 404"}, {"erro 17"}, {"erro 42"}, {"Il server ha risposto 503"}, {"Il server ha risposto 404"}, {"codice errore 17"}, {"codice errore 42"}, {"Il server ha restituito 503"}, {"Il server ha restituito 404"},
		{"De server antwoordde met 503"}, {"De server antwoordde met 404"}, {"foutcode 17"}, {"foutcode 42"}, {"Serwer zwrócił 503"}, {"Serwer zwrócił 404"}, {"kod błędu 17"}, {"kod błędu 42"}, {"błąd 17"}, {"błąd 42"},
		{"Сервер вернул 503"}, {"Сервер вернул 404"}, {"Код ошибки 17"}, {"Код ошибки 42"}, {"Ошибка 17"}, {"Ошибка 42"}, {"felkod 17"}, {"felkod 42"}, {"Sunucu 503 döndürdü"}, {"Sunucu 404 döndürdü"}, {"hata kodu 17"}, {"hata kodu 42"},
		{"Заказ 4711 не оплачен", "Заказ 90210 не оплачен"}, {"заказ4711 отклонён", "заказ90210 отклонён"}, {"Bestellung 4711 abgelehnt", "Bestellung 90210 abgelehnt"}, {"Größe17 fehlt", "Größe42 fehlt"},
	},
	"codes of vendors": {
		{"SQLSTATE[23000]: Integrity constraint violation: 1062"}, {"SQLSTATE[23000]: Integrity constraint violation: 1452"},
		{"SQLSTATE[42S02]: Base table or view not found: 1146 Table 'x' is missing"}, {"SQLSTATE[42S02]: Base table or view not found: 1051 Table 'x' is missing"},
		{"SQLSTATE[HY000] [2002] Connection refused"}, {"SQLSTATE[HY000] [1045] Connection refused"},
		{"DB2 SQL Error: SQLCODE=-803, SQLSTATE=23505"}, {"DB2 SQL Error: SQLCODE=-530, SQLSTATE=23505"}, {"ORA-00001: unique constraint violated"}, {"ORA-01400: unique constraint violated"},
		{"SQL state [23000]; error code [1062]"}, {"SQL state [23000]; error code [1452]"}, {"ERROR 1062 (23000): duplicate"}, {"ERROR 1452 (23000): duplicate"},
		{`(1062, "Duplicate entry")`}, {`(1452, "Duplicate entry")`}, {"Msg 2627, Level 14, State 1: duplicate"}, {"Msg 547, Level 14, State 1: duplicate"},
		{"[Microsoft][ODBC Driver 17 for SQL Server][SQL Server] duplicate (2627)"}, {"[Microsoft][ODBC Driver 17 for SQL Server][SQL Server] duplicate (547)"},
		{"SQL error: -803"}, {"SQL error: -530"}, {"vendorCode=17002"}, {"vendorCode=17410"},
	},
	"ports": {
		{"Failed password for root from 192.0.2.76 port 42393 ssh2", "Failed password for root from 192.0.2.3 port 45378 ssh2"},
		{"Connection reset by 10.0.0.1 port 51234", "Connection reset by 10.0.0.2 port 40001"},
		{"could not bind on port 5432"}, {"could not bind on port 5433"}, {"could not bind on port 50051"}, {"could not bind on port 50052"}, {"listening on port 61613 failed"}, {"listening on port 61616 failed"},
		{"posting entry 89147702: connection refused to 10.0.3.7:5432 (local port 56517, tried 3 times)", "posting entry 89147703: connection refused to 10.0.3.7:5432 (local port 33001, tried 4 times)"},
		{"reset (port=56517)", "reset (port=33001)"}, {"reset, source port: 56517", "reset, source port: 33001"}, {"reset SPT=56517", "reset SPT=33001"}, {"reset sport 56517", "reset sport 33001"},
		{"cannot reach db port 5432"}, {"cannot reach db port 5433"}, {"listen tcp :50051: bind: address already in use"}, {"listen tcp :50052: bind: address already in use"},
		{"listen tcp 0.0.0.0:50051: bind: address already in use"}, {"listen tcp 0.0.0.0:50052: bind: address already in use"},
	},
	"ids": {
		{"request req_zEpbaEubrEN7 failed", "request req_8fK2lQx9Aa1b failed"}, {"no such charge: ch_3NxYq2LkdIwHu7ix", "no such charge: ch_1AbCdEfGhIjKlMnO"}, {"cannot update pi_3MtwBwLkdIwHu7ix28a3tqPa", "cannot update pi_1GszdEjklfIwHu7ixAbCdEfG"},
		{"customer cus_NffrFeUfNV2Hib is gone", "customer cus_PQrStUvWxYz1ab is gone"}, {"conflict of req_zEpbaEubrEN7", "conflict of req_QwErTyUiOpAs"}, {"index idx_orders2 is missing"}, {"index idx_orders3 is missing"},
		{"function get_userName2 failed"}, {"function get_userMail2 failed"},
	},
	"lines and numbers": {
		{"orders-2026-04-11.csv:38829: bad row", "orders-2026-04-12.csv:7996: bad row"}, {"110 rows were expected, 109 found", "98 rows were expected, 97 found"}, {"statement needs 4"}, {"statement needs 5"},
		{"exceeds limit of 1048576"}, {"exceeds limit of 4194304"},
	},
	"texts of which little differs": {
		{long("disk full", "")}, {long("disk broken", "")}, {long("disk full", "permission denied")}, {long("disk full", "quota exceeded")},
	},
}

func TestGroups(t *testing.T) {
	t.Parallel()
	for name, list := range groups {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := map[string]string{}
			for _, group := range list {
				first := Normalize(Failure{Message: group[0]})
				if other, ok := seen[first.Key]; ok {
					t.Errorf("one cause: %.90q and %.90q: %.90q", other, group[0], first.Pattern)
				}
				for _, message := range group {
					c := Normalize(Failure{Message: message})
					if c.Key != first.Key {
						t.Errorf("two causes: %.90q and %.90q", first.Pattern, c.Pattern)
					}
					seen[c.Key] = message
				}
			}
		})
	}
}

func TestPatternsOfTextsWithoutSpaces(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"订单4711支付失败":             "订单<id>支付失败",
		"节点12宕机":                 "节点<id>宕机",
		"第3次重试失败：磁盘已满":           "第<n>次重试失败:磁盘已满",
		"网关返回503":                "网关返回503",
		"連線逾時：等待300毫秒":           "連線逾時:等待<dur>",
		"주문4711결제실패":             "주문<id>결제실패",
		"注文4711の支払いに失敗しました":      "注文<id>の支払いに失敗しました",
		"订单 4711 支付失败":           "订单 <id> 支付失败",
		"POST /v2/订单 返回 502（上游）": "POST /v2/<id> 返回 502(上游)",
	} {
		if got := Normalize(Failure{Message: message}).Pattern; got != want {
			t.Errorf("%q becomes %q, want %q", message, got, want)
		}
	}
}
