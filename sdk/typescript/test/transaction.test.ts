// Creates tasks with tasker.create_task in the transactions of a program, see docs/how-to/transactions.md.
import pg from "pg";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { Client, silentLogger, TaskerError, Worker } from "@tasker/sdk";

const url = inject("url");
const client = new Client({ url });
const namespace = `ts-${process.pid}-${Date.now()}-sql`;
const orders = `orders_${process.pid}_${Date.now()}`;
const db = new pg.Client({ connectionString: inject("database") });
const worker = new Worker({ namespaces: [namespace], url, logger: silentLogger });

beforeAll(async () => {
    await db.connect();
    await db.query(`CREATE TABLE public.${orders} (id int PRIMARY KEY, task uuid NOT NULL)`);
    await client.templates.put({
        namespace_name: namespace,
        name: "fulfil",
        version: "1.0.0",
        input_schema: { type: "object", required: ["order_id"] },
        steps: [{ name: "ship", handler: { callable: "ship" } }],
    });
    worker.handle("ship", (order: { order_id: number }) => ({ shipped: order.order_id }));
    await worker.start();
});

afterAll(async () => {
    await worker.stop();
    await db.query(`DROP TABLE public.${orders}`);
    await db.end();
    client.close();
});

/** request inserts an order and requests its task in the open transaction. It returns the UUID of the task. */
async function request(id: number, context: object, name = "fulfil"): Promise<string> {
    const { rows } = await db.query<{ task: string }>("SELECT tasker.create_task($1, $2, $3) AS task", [
        namespace,
        name,
        JSON.stringify(context),
    ]);
    const { task } = rows[0]!;
    await db.query(`INSERT INTO public.${orders} (id, task) VALUES ($1, $2)`, [id, task]);
    return task;
}

async function stored(id: number): Promise<string[]> {
    const { rows } = await db.query<{ task: string }>(`SELECT task FROM public.${orders} WHERE id = $1`, [id]);
    return rows.map((row) => row.task);
}

test("the commit of a transaction starts its task", async () => {
    await db.query("BEGIN");
    const task = await request(7, { order_id: 7 });
    await expect(client.get(task)).rejects.toMatchObject({ code: "NOT_FOUND" });
    await db.query("COMMIT");
    expect(await stored(7)).toEqual([task]);
    const created = await untilCreated(task);
    expect(await created.result()).toEqual({ ship: { shipped: 7 } });
});

test("after a rollback neither the row nor the task exists", async () => {
    await db.query("BEGIN");
    const undone = await request(8, { order_id: 8 });
    await db.query("ROLLBACK");
    await db.query("BEGIN");
    const later = await request(9, { order_id: 9 });
    await db.query("COMMIT");
    await (await untilCreated(later)).result();
    expect(await stored(8)).toEqual([]);
    await expect(client.get(undone)).rejects.toMatchObject({ code: "NOT_FOUND" });
    expect((await requests()).map((r) => r.task_uuid)).not.toContain(undone);
});

test("an unknown template aborts the transaction", async () => {
    await db.query("BEGIN");
    await expect(request(10, { order_id: 10 }, "unknown")).rejects.toMatchObject({ code: "TK404" });
    await db.query("ROLLBACK");
    expect(await stored(10)).toEqual([]);
});

test("a request that the server refuses after the commit is listed with its error", async () => {
    await db.query("BEGIN");
    const task = await request(11, {});
    await db.query("COMMIT");
    await expect.poll(() => requests("&refused=true"), { timeout: 15_000 }).toEqual([
        expect.objectContaining({
            task_uuid: task,
            name: "fulfil",
            error_code: "INVALID",
            error_message: expect.stringContaining("order_id") as string,
        }),
    ]);
    await expect(client.get(task)).rejects.toThrow("order_id");
});

/** untilCreated waits until the server has created a requested task. */
async function untilCreated(task: string) {
    const handle = client.task(task);
    const exists = () =>
        handle.get().then(
            () => true,
            (error: TaskerError) => (error.code === "NOT_FOUND" ? false : Promise.reject(error)),
        );
    await expect.poll(exists, { timeout: 15_000 }).toBe(true);
    return handle;
}

async function requests(filter = ""): Promise<any[]> {
    const response = await fetch(`${url}/v1/task-requests?namespace=${namespace}${filter}`);
    expect(response.status).toBe(200);
    return ((await response.json()) as { requests: any[] }).requests;
}
