// Lists all validation answers of a run, and plays the chosen one next to the solver's plan.
// answers.py writes and documents the data. Model-written text becomes text nodes only.
"use strict";
(() => {
  const source = document.getElementById("answers-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const PAGE_SIZE = 50, CELL = 40, MARGIN = 30, EDGE = 8, STEP_MS = 700;
  const STARTS = "SsABC", GOALS = "Ggabc";
  const MOVES = {
    L: ["LEFT", 0, -1], D: ["DOWN", 1, 0], R: ["RIGHT", 0, 1], U: ["UP", -1, 0], W: ["WAIT", 0, 0],
  };
  const at = (id) => document.getElementById(id);

  // ---- elements ----

  function element(name, attributes = {}, ...content) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...content.map(String));
    return made;
  }

  function drawn(name, attributes = {}, text = null) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    return made;
  }

  function listOf(words) {
    return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
  }

  // ---- answers as records ----

  const instanceWord = data.instance[0].toUpperCase() + data.instance.slice(1);
  const boards = data.boards.map(([id, group, ...rest]) => {
    if (!data.lake) return { id, group, lines: rest[0] };
    const [rows, holes, waits, optimum, plan] = rest;
    return { id, group, rows, holes, waits, optimum, plan };
  });

  const stages = data.stages.map((stage, number) => ({
    name: stage.name,
    answers: stage.answers.map(([board, result, plan, time, agents, text, cut, about]) => ({
      stage: number, board, result, plan: plan ?? null, time: time ?? null, agents: agents ?? [],
      text: text ?? null, cut: cut ?? 0, about: about ?? "",
    })),
  }));
  const isValid = (answer) => answer.result < data.valid_results;
  const resultsByStage = stages.map(
    (stage) => new Map(stage.answers.map((answer) => [answer.board, answer])),
  );

  function answerBefore(answer) {
    return answer.stage > 0 ? resultsByStage[answer.stage - 1].get(answer.board) : undefined;
  }

  function usualWords(plan) {
    return plan
      .map((moves, agent) => `Agent ${agent}: ${[...moves].map((move) => MOVES[move][0]).join(" ")}`)
      .join("\n");
  }

  function textOf(answer) {
    if (answer.text === null) return answer.plan ? usualWords(answer.plan) : "(no answer)";
    const more = answer.cut ? `\n… ${answer.cut} characters more` : "";
    return (answer.text || "(empty answer)") + more;
  }

  /** Say how an answer turned out; steps count from 0, as in the files of a run. */
  function outcomeOf(answer) {
    let said = data.results[answer.result];
    if (!isValid(answer)) {
      if (answer.time !== null) said += data.lake ? ` in step ${answer.time}` : `, at ${answer.time}`;
      if (answer.agents.length) {
        said += `, agent${answer.agents.length > 1 ? "s" : ""} ${listOf(answer.agents)}`;
      }
    }
    return said;
  }

  // ---- a board and the plan on it ----

  /** Cells of starts and goals by agent, as [row, column]. */
  function placesOf(rows, symbols) {
    const places = [];
    rows.forEach((row, r) => [...row].forEach((letter, c) => {
      const agent = symbols.indexOf(letter);
      if (agent >= 0) places[agent] = [r, c];
    }));
    return places;
  }

  /** Where all agents are after 0, 1, ... steps; an agent whose moves are over waits. */
  function momentsOf(starts, plan, limit = Infinity) {
    const moments = [starts];
    const steps = plan ? Math.min(limit, Math.max(0, ...plan.map((moves) => moves.length))) : 0;
    for (let step = 0; step < steps; step += 1) {
      moments.push(moments[step].map(([row, column], agent) => {
        const [, down, right] = MOVES[plan[agent]?.[step] ?? "W"];
        return [row + down, column + right];
      }));
    }
    return moments;
  }

  const centre = (cell) => MARGIN + (cell + 0.5) * CELL;

  /** Draw what does not move. */
  function drawGround(svg, board) {
    const size = board.rows.length;
    for (let index = 0; index < size; index += 1) {
      const aside = { class: "lake-number", "text-anchor": "middle" };
      svg.append(drawn("text", { ...aside, x: centre(index), y: MARGIN - 10 }, index));
      svg.append(drawn("text", { ...aside, x: MARGIN - 14, y: centre(index) + 4 }, index));
    }
    board.rows.forEach((row, r) => [...row].forEach((letter, c) => {
      const hole = letter === "H";
      svg.append(drawn("rect", {
        class: hole ? "lake-hole" : "lake-ice", rx: 4, width: CELL - 3, height: CELL - 3,
        x: centre(c) - CELL / 2 + 1.5, y: centre(r) - CELL / 2 + 1.5,
      }));
      if (hole) svg.append(drawn("circle", { class: "lake-pit", cx: centre(c), cy: centre(r), r: 9 }));
    }));
    placesOf(board.rows, GOALS).forEach(([r, c], agent) => {
      const colour = data.colours[agent][0];
      svg.append(drawn("rect", {
        x: centre(c) - 15, y: centre(r) - 15, width: 30, height: 30, rx: 5,
        fill: colour, "fill-opacity": 0.22, stroke: colour, "stroke-width": 2.5,
      }));
      svg.append(drawn("text", {
        class: "lake-goal", x: centre(c) + 8, y: centre(r) + 11, "text-anchor": "middle",
      }, agent));
    });
    placesOf(board.rows, STARTS).forEach(([r, c], agent) => svg.append(drawn("circle", {
      cx: centre(c), cy: centre(r), r: 14, fill: "none", stroke: data.colours[agent][0],
      "stroke-width": 2, "stroke-dasharray": "4 4",
    })));
  }

  /** One board whose agents can be put where they are at any moment. */
  class Player {
    constructor(holder, title) {
      this.holder = holder;
      this.title = title;
    }

    /** Show a board and a plan, or none; a failure has a step or null, and agents. */
    load(board, plan, failure) {
      const starts = placesOf(board.rows, STARTS), side = MARGIN + board.rows.length * CELL + EDGE;
      const struck = failure && failure.time !== null ? failure.time + 1 : Infinity;
      this.moments = momentsOf(starts, plan, struck);
      this.failure = failure;
      this.offBoard = board.rows.length;
      this.svg = drawn("svg", { viewBox: `0 0 ${side} ${side}`, role: "img", class: "lake-board" });
      this.svg.style.minWidth = `${0.8 * side}px`; // its text stays readable
      const widest = Math.min(Math.max(420, 1.7 * side), 540);
      this.svg.style.maxWidth = `${widest}px`;
      // Small boards are enlarged, the numbers beside them less so.
      this.svg.style.setProperty("--number", `${14 * Math.min(1, (1.7 * side) / widest)}px`);
      drawGround(this.svg, board);
      this.trails = starts.map((_, agent) => this.svg.appendChild(drawn("polyline", {
        fill: "none", stroke: data.colours[agent][0], class: "lake-trail",
      })));
      this.discs = starts.map((_, agent) => {
        const disc = drawn("g", { class: "lake-agent" });
        disc.append(
          drawn("circle", { r: 12.5, fill: data.colours[agent][0], class: "lake-disc" }),
          drawn("text", {
            y: 5, "text-anchor": "middle", fill: data.colours[agent][1], class: "lake-name",
          }, agent),
        );
        return this.svg.appendChild(disc);
      });
      this.marks = this.svg.appendChild(drawn("g", { class: "lake-marks" }));
      this.holder.replaceChildren(this.svg);
    }

    /** Say in place of a board why there is none. */
    refuse(words) {
      this.svg = this.failure = null;
      this.moments = [[]];
      this.holder.replaceChildren(element("p", { class: "problem" }, words));
    }

    get steps() {
      return this.moments.length - 1;
    }

    failedBy(step) {
      return Boolean(this.failure) && step >= this.steps;
    }

    /** Show the moment after so many steps, or the last one. */
    show(step) {
      if (!this.svg) return;
      const now = Math.min(step, this.steps), places = this.moments[now];
      places.forEach((place, agent) => {
        const [x, y] = this.point(place, agent, places);
        this.discs[agent].style.transform = `translate(${x}px, ${y}px)`;
        const path = this.moments.slice(0, now + 1);
        const points = path.map((moment) => this.point(moment[agent], agent, []).join(","));
        this.trails[agent].setAttribute("points", points.join(" "));
      });
      const failed = this.failedBy(now) ? this.failure.agents : [];
      const cells = new Map(failed.map((agent) => [places[agent].join(), places[agent]]));
      this.marks.replaceChildren(...[...cells.values()].flatMap((cell) => this.mark(cell)));
      const where = places.map(([r, c], agent) => `agent ${agent} at (${r}, ${c})`);
      const fault = this.failedBy(now) ? `; ${this.failure.words}` : "";
      const said = `${this.title}, after ${now} of ${this.steps} steps: ${listOf(where)}${fault}`;
      this.svg.setAttribute("aria-label", said);
    }

    /** Where an agent is drawn: in its cell, beside others that are there, too. */
    point(place, agent, places) {
      const same = (other) => other[0] === place[0] && other[1] === place[1];
      const there = places.map((_, index) => index).filter((index) => same(places[index]));
      const rank = there.indexOf(agent);
      const aside = rank < 0 ? 0 : (rank - (there.length - 1) / 2) * 14;
      const inside = (cell) => Math.min(Math.max(cell, -0.75), this.offBoard - 0.25);
      return [centre(inside(place[1])) + aside, centre(inside(place[0]))];
    }

    /** A ring and a cross at a cell where agents fail. */
    mark(place) {
      const [x, y] = this.point(place, -1, []);
      const cross = `M${x + 9} ${y - 21}l11 11m0-11l-11 11`;
      return [
        drawn("circle", { cx: x, cy: y, r: 20, class: "lake-ring" }),
        drawn("path", { d: cross, class: "lake-cross lake-edge" }),
        drawn("path", { d: cross, class: "lake-cross" }),
      ];
    }
  }

  const players = [
    new Player(at("model-board"), "The model's plan"),
    new Player(at("solver-board"), "The solver's plan"),
  ];
  let timer = null, step = 0, steps = 0, chosen = null;

  function showStep(wanted) {
    step = Math.max(0, Math.min(wanted, steps));
    for (const player of players) player.show(step);
    const failed = players[0].failedBy(step) ? `, ${players[0].failure.words}` : "";
    at("scrub").value = step;
    at("scrub").setAttribute("aria-valuetext", `after ${step} of ${steps} steps${failed}`);
    at("moment").textContent = `${step} / ${steps}`;
    at("back").disabled = step === 0;
    at("forward").disabled = step === steps;
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    if (data.lake) at("play").textContent = "Play";
  }

  function start() {
    if (step === steps) showStep(0);
    at("play").textContent = "Pause";
    timer = setInterval(() => {
      showStep(step + 1);
      if (step === steps) stop();
    }, STEP_MS / Number(at("speed").value));
  }

  /** Show an answer: played on its board, or as text where there is none. */
  function choose(answer) {
    stop();
    chosen = answer;
    const board = boards[answer.board], before = answerBefore(answer), words = outcomeOf(answer);
    const failure = isValid(answer) ? null : { time: answer.time, agents: answer.agents, words };
    at("chosen").textContent = [
      `${instanceWord} ${board.id}`, data.groups[board.group], stages[answer.stage].name,
    ].join(" · ");
    at("outcome").className = isValid(answer) ? "good" : "bad";
    at("outcome").textContent = (isValid(answer) ? "✓ " : "✗ ") + words;
    at("about").textContent = [
      ...(data.lake ? [`optimum ${board.optimum}`, board.waits ? "needs a wait" : "needs no wait"] : []),
      ...(before ? [`in the stage before: ${data.results[before.result]}`] : []),
      ...(answer.about ? [answer.about] : []),
    ].join(" · ");
    at("said").textContent = textOf(answer);
    if (data.lake) {
      loadBoards(board, answer, failure);
    } else {
      at("instance-lines").textContent = board.lines;
    }
    markChosen();
  }

  function loadBoards(board, answer, failure) {
    if (!board.rows) {
      for (const player of players) player.refuse("The grid of this record is no board.");
    } else {
      players[0].load(board, answer.plan, failure);
      if (board.plan) players[1].load(board, board.plan, null);
      else players[1].refuse("The solver found no plan within its budget.");
    }
    at("unread").hidden = answer.plan !== null || !board.rows;
    steps = Math.max(...players.map((player) => player.steps));
    at("scrub").max = steps;
    at("play").disabled = steps === 0;
    showStep(0);
  }

  // ---- the list ----

  let found = [], page = 0;

  function fill(select, options) {
    select.append(...options.map(([value, words]) => element("option", { value }, words)));
  }

  function fillFilters() {
    fill(at("stage"), stages.map((stage, index) => [index, stage.name]));
    at("stage").value = stages.length - 1;
    fill(at("group"), [["", "all"], ...data.groups.map((name, index) => [index, name])]);
    const kinds = data.results.map((name, index) => [index, name]);
    const seen = new Set(stages.flatMap((stage) => stage.answers.map((answer) => answer.result)));
    const there = kinds.filter(([index]) => seen.has(index));
    fill(at("result"), [["", "all"], ["valid", "all valid"], ["failed", "all failed"], ...there]);
    fill(at("change"), [["", "all"], ["gained", "became valid"], ["lost", "became invalid"]]);
    if (!data.lake) return;
    const counts = [...new Set(boards.map((board) => board.holes))].sort((a, b) => a - b);
    fill(at("holes"), [["", "all"], ...counts.map((count) => [count, count])]);
    fill(at("waits"), [["", "all"], ["1", "yes"], ["0", "no"]]);
  }

  function isWanted(answer) {
    const board = boards[answer.board], before = answerBefore(answer);
    const result = at("result").value, change = at("change").value;
    const equal = (id, value) => !at(id)?.value || Number(at(id).value) === value;
    const turned = before && isValid(before) !== isValid(answer);
    return equal("group", board.group) && equal("holes", board.holes)
      && equal("waits", board.waits)
      && (result === "" || (result === "valid" && isValid(answer))
        || (result === "failed" && !isValid(answer)) || Number(result) === answer.result)
      && (change === "" || (turned && isValid(answer) === (change === "gained")));
  }

  function rowOf(answer) {
    const board = boards[answer.board], before = answerBefore(answer);
    const row = document.createElement("tr"), number = document.createElement("th");
    const button = element("button", { type: "button", class: "pick" }, board.id);
    button.setAttribute("aria-label", `Show ${data.instance} ${board.id}`);
    button.addEventListener("click", () => {
      choose(answer);
      at("player").scrollIntoView({ block: "nearest" });
    });
    number.scope = "row";
    number.append(button);
    const cells = [data.groups[board.group]];
    if (data.lake) cells.push(board.holes, board.waits ? "yes" : "no", board.optimum);
    const mark = (one) => (one ? `${isValid(one) ? "✓" : "✗"} ${data.results[one.result]}` : "–");
    row.append(
      number,
      element("td", { class: isValid(answer) ? "good" : "bad" }, mark(answer)),
      element("td", {}, mark(before)),
      ...cells.map((value) => element("td", {}, value)),
    );
    row.answer = answer;
    return row;
  }

  function markChosen() {
    for (const row of at("listed").rows) {
      if (row.answer === chosen) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
    const place = found.indexOf(chosen);
    at("previous").disabled = place <= 0;
    at("next").disabled = place === found.length - 1;
  }

  function showPage(wanted) {
    const last = Math.max(0, Math.ceil(found.length / PAGE_SIZE) - 1);
    page = Math.max(0, Math.min(wanted, last));
    const begin = page * PAGE_SIZE, rows = found.slice(begin, begin + PAGE_SIZE);
    at("listed").replaceChildren(...rows.map(rowOf));
    const of = `of ${found.length.toLocaleString("en")}`;
    at("range").textContent = rows.length ? `${begin + 1} to ${begin + rows.length} ${of}` : "none";
    for (const id of ["first-page", "previous-page"]) at(id).disabled = page === 0;
    for (const id of ["next-page", "last-page"]) at(id).disabled = page === last;
    markChosen();
  }

  function applyFilters() {
    found = stages[Number(at("stage").value)].answers.filter(isWanted);
    showPage(0);
    if (found.length && !found.includes(chosen)) choose(found[0]);
  }

  function chooseBeside(offset) {
    const place = found.indexOf(chosen) + offset;
    if (place < 0 || place >= found.length) return;
    if (Math.floor(place / PAGE_SIZE) !== page) showPage(Math.floor(place / PAGE_SIZE));
    choose(found[place]);
  }

  function listen(actions) {
    for (const [id, act] of Object.entries(actions)) at(id).addEventListener("click", act);
  }

  at("answers").hidden = false;
  fillFilters();
  at("filters").addEventListener("change", applyFilters);
  listen({
    previous: () => chooseBeside(-1),
    next: () => chooseBeside(1),
    "first-page": () => showPage(0),
    "previous-page": () => showPage(page - 1),
    "next-page": () => showPage(page + 1),
    "last-page": () => showPage(Infinity),
  });
  if (data.lake) {
    const seek = (wanted) => { stop(); showStep(wanted); };
    listen({
      play: () => (timer === null ? start() : stop()),
      back: () => seek(step - 1),
      forward: () => seek(step + 1),
    });
    const keys = {
      " ": () => (timer === null ? start() : stop()),
      ArrowLeft: () => seek(step - 1),
      ArrowRight: () => seek(step + 1),
      Home: () => seek(0),
      End: () => seek(steps),
    };
    at("boards").addEventListener("keydown", (event) => {
      if (!(event.key in keys) || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      if (steps > 0) keys[event.key]();
    });
    at("scrub").addEventListener("input", () => seek(Number(at("scrub").value)));
    at("speed").addEventListener("change", () => { if (timer !== null) { stop(); start(); } });
  }
  applyFilters();
})();
